"""The note on an evaluation episode: its film."""

from __future__ import annotations

from rlcore.report import Film, TurnNote
from rlcore.types import Task, Trajectory

EXECUTED = "executed"
"""Array of a control trajectory with the actions of each decision."""
VIDEOS = "videos"
"""Folder of a run with the videos."""


def video_name(step: int, task: Task, trajectory: Trajectory) -> str:
    """The name of the video of an episode in the run directory."""
    done = "done" if trajectory.metrics.get("success") else "not-done"
    return f"{VIDEOS}/{step:06d}-{task.id}-{done}.mp4"


def turn_notes(task: Task, trajectory: Trajectory, step: int) -> list[TurnNote | None] | None:
    """A note with the film of an episode; None for an episode that is never filmed."""
    is_ours = task.id == str(task.fields.get("seed")) and any(EXECUTED in one.arrays for one in trajectory.segments)
    if not is_ours or trajectory.sibling:
        return None
    return [TurnNote(films=(Film(file=video_name(step, task, trajectory), title="The episode, replayed"),))]


__all__ = ["EXECUTED", "turn_notes", "video_name"]
