"""The environment and its reward."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore import Message, Observation, Step, Task, Trajectory

OPENS = {"red": "silver", "green": "gold", "blue": "iron"}
"""The key for each colour of a door. The model learns them from the reward alone."""


class Doors:
    """A corridor of doors. The episode ends after the last door or the first wrong key.

    rlcore creates an object for each episode.
    """

    def reset(self, task: Task, *, seed: int) -> Observation:
        """Show the first door. The seed is not needed, because nothing here is random."""
        self.doors = list(task.fields["doors"])
        return Observation(messages=task.messages)

    def step(self, action: Message) -> Step:
        """Try the key that the model names. Any other text is a wrong key, not an error."""
        fits = action.text.strip() == OPENS[self.doors.pop(0)]
        if not fits or not self.doors:
            return Step(terminated=True, info={"opened": int(fits)})
        return Step(observation=Observation(messages=(next_door(self.doors[0]),)), info={"opened": 1})

    def close(self) -> None:
        """Free the resources of the episode: here, none."""

    def oracle(self, task: Task) -> Sequence[Message]:
        """The messages of a perfect episode, with which the conformance suite tests the environment."""
        return [key_of(door) for door in task.fields["doors"]]


def opened(trajectory: Trajectory, task: Task) -> float:
    """The share of the doors that were opened. ``metrics`` has the sums of ``Step.info``."""
    return trajectory.metrics.get("opened", 0) / len(task.fields["doors"])


def next_door(colour: str) -> Message:
    """What the model sees after a right key."""
    return Message(role="user", content=f"It opens. A {colour} door.")


def key_of(colour: str) -> Message:
    """The right answer to a door."""
    return Message(role="assistant", content=OPENS[colour])
