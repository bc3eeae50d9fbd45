"""The score of a generator's verifier."""

from __future__ import annotations

from rlcore.types import RewardResult, Task, Trajectory, thaw

from rl_plugin_reasoning_gym.config import RewardConfig
from rl_plugin_reasoning_gym.library import LibraryError, library

LONGEST_RESPONSE = 100_000
"""Only the last characters of a longer response are searched for the answer."""


class Verified:
    """Calls ``score_answer`` of the generator.

    If that raises or takes too long, the answer scores 0: verifiers do so for answers that they cannot read, and such
    answers must not be exempt. They have the component ``unverified``. A response without an answer, or with an empty
    one, scores 0 unless this is a right answer: some verifiers give it up to 0.1.
    """

    def __init__(self, config: RewardConfig) -> None:
        self._tag = config.tag

    def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """The score, also as a component with the name of the generator."""
        fields = task.fields
        entry = {
            "question": task.messages[-1].text,
            "answer": fields["answer"],
            "metadata": thaw(fields["metadata"]),
        }
        generator = {name: thaw(fields[name]) for name in ("name", "level", "options")}
        response = trajectory.final_response[-LONGEST_RESPONSE:]
        try:
            value = library().ask("score", generator=generator, entry=entry, response=response, tag=self._tag)
        except LibraryError as error:
            return RewardResult(value=0.0, components={fields["name"]: 0.0, "unverified": 1.0}, text=error.line)
        return RewardResult(value=value, components={fields["name"]: value})
