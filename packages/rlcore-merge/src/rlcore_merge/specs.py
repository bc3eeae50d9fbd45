"""What plugins offer to the merge."""

from __future__ import annotations

from dataclasses import dataclass

from rlcore.specs import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class MergerSpec(Spec):
    """A layout; ``target(folder, request)`` makes a `rlcore_merge.checkpoint.Checkpoint` of a folder of it."""

    looked_for: str = ""
    """The files that tell it, as the sentence about a folder of no layout says them."""
