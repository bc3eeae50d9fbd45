"""What the model reads about the result of its code."""

from __future__ import annotations
