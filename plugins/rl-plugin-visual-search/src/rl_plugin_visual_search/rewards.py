"""The rewards: accuracy, the tool bonus and the format."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore import Group, RewardResult, Task, Trajectory
from rlcore.types import Stop

from rl_plugin_visual_search.config import AccuracyConfig, ToolBonusConfig
from rl_plugin_visual_search.grammar import parse
from rl_plugin_visual_search.matching import compare

TOOL_CALLS, TOOL_SUCCESSES = "tool_calls", "tool_successes"
"""Metrics of a trajectory, which the environment counts."""


class Accuracy:
    """1 if the boxed answer is right, else 0. A task without an answer is not scored.

    The last answer of the last turn counts, and only what the model wrote: a box in an observation is no answer. An
    answer that is too long is wrong.
    """

    def __init__(self, config: AccuracyConfig) -> None:
        self.config = config

    def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """Compare the answer with the accepted ones, by string."""
        accepted = accepted_answers(task)
        if not accepted:
            fields = ", ".join(sorted(task.fields)) or "none"
            error = f"task {task.id!r}: the field 'answer' must contain a text; found the fields {fields}"
            return RewardResult(value=None, error=error)
        answer = parse(trajectory.final_response).answer
        components = {"answered": float(answer is not None), "too_long": 0.0}
        if answer is None:
            return RewardResult(value=0.0, components=components)
        if len(answer) > self.config.max_answer_characters:
            return RewardResult(value=0.0, components={**components, "too_long": 1.0})
        verdict = compare(
            answer,
            accepted,
            options=[str(option) for option in task.fields.get("options") or ()],
            relative=self.config.numbers == "relative",
        )
        if verdict.relative is not None:
            components["relative_accuracy"] = verdict.relative
        return RewardResult(value=float(verdict.right), components=components)


class ToolBonus:
    """The number of successful tool calls of a trajectory whose answer is right, else 0.

    It is a group reward because those are computed after the rewards of single trajectories, whose results it reads:
    any of them can say whether the answer is right.
    """

    def __init__(self, config: ToolBonusConfig) -> None:
        self.config = config

    def __call__(self, group: Group) -> Sequence[RewardResult]:
        """One result for each trajectory, independent of the others."""
        return [self._of(trajectory) for trajectory in group.trajectories]

    def _of(self, trajectory: Trajectory) -> RewardResult:
        config = self.config
        calls = trajectory.metrics.get(TOOL_CALLS, 0.0)
        counted = calls if config.failed else trajectory.metrics.get(TOOL_SUCCESSES, 0.0)
        if config.most is not None:
            counted = min(counted, config.most)
        components = {"calls": calls, "counted": counted}
        if not counted:
            return RewardResult(value=0.0, components=components)
        accuracy = trajectory.rewards.get(config.accuracy)
        if accuracy is None:
            known = ", ".join(trajectory.rewards) or "none"
            error = f"the run has no reward {config.accuracy!r} that scores single trajectories; it has {known}"
            return RewardResult(value=None, components=components, error=error)
        if accuracy.value is None:
            return RewardResult(value=None, components=components, error=f"{config.accuracy} has no value")
        right = accuracy.value >= config.threshold
        return RewardResult(value=counted if right else 0.0, components={**components, "right": float(right)})


def format_reward(trajectory: Trajectory, task: Task) -> RewardResult:
    """1 if every turn has exactly one block, or one call of a tool, and the last one answers, else 0."""
    turns = [message for message in trajectory.messages if message.role == "assistant"]
    actions = [parse(turn.text) for turn in turns]
    sound = [
        action.well_formed if not turn.tool_calls else len(turn.tool_calls) == 1 and turn.tool_calls[0].error is None
        for turn, action in zip(turns, actions, strict=True)
    ]
    answers = bool(actions) and actions[-1].answer is not None and trajectory.stop is Stop.DONE
    components = {"sound_turns": sum(sound) / len(sound) if sound else 0.0, "answered": float(answers)}
    return RewardResult(value=float(answers and all(sound)), components=components)


def accepted_answers(task: Task) -> list[str]:
    """The right answers of a task, the main one first; empty without a usable one."""
    aliases = task.fields.get("aliases") or ()
    texts = [task.fields.get("answer"), *(aliases if isinstance(aliases, (list, tuple)) else ())]
    found = [str(text).strip() for text in texts if isinstance(text, (str, int, float))]
    return [text for text in found if text] if found and found[0] else []


__all__ = ["Accuracy", "ToolBonus", "accepted_answers", "format_reward"]
