"""The error that the server answers with 404."""

from __future__ import annotations

from rlcore.errors import UserError


class NotFoundError(UserError):
    """Something that there is not: a run, a step, a group, an image."""


__all__ = ["NotFoundError"]
