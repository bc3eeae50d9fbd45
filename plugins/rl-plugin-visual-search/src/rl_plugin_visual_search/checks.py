"""Checks of the settings of the environment and the tool bonus before a run starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlcore.checks import Finding, failure, warning

from rl_plugin_visual_search.config import DataConfig, ToolBonusConfig
from rl_plugin_visual_search.grammar import END_OF_CODE


def check(run: Any, environment: Any) -> Iterator[Finding]:
    """Warn about turns that do not end after their code, and about episodes without a turn for a tool.

    Args:
        run: a `rlcore.session.session.RunSession`
        environment: a `rlcore.config.resolved.ResolvedEnvironment`
    """
    data = environment.data
    if not isinstance(data, DataConfig):
        return
    if data.tools != "none" and environment.options.max_turns == 1:
        yield warning(
            "environment.max_turns=1 leaves no turn for a tool, because nothing is run in the last turn; set it to 2 "
            "or more, or set data.tools=none"
        )
    if data.runs_code and not any(text.endswith(END_OF_CODE) for text in run.config.rollout.stop):
        yield warning(
            f"generation does not stop after {END_OF_CODE}: a model may go on and write the output of its code itself, "
            f"up to rollout.max_new_tokens; set rollout.stop='[\"{END_OF_CODE}\"]'"
        )


def check_tool_bonus(run: Any, environment: Any, index: int) -> Iterator[Finding]:
    """Reject a tool bonus whose accuracy is not a reward of single trajectories in the run.

    Args:
        run: a `rlcore.session.session.RunSession`
        environment: a `rlcore.config.resolved.ResolvedEnvironment`
        index: of the bonus in the rewards of the environment
    """
    bonus = environment.reward_options[index]
    specs = [run.registry.spec("reward", table.id) for table in environment.rewards]
    usable = [spec.id for spec in specs if spec.scope == "trajectory"]
    if isinstance(bonus, ToolBonusConfig) and bonus.accuracy not in usable:
        key = ".".join((*environment.at("reward"), str(index), "accuracy"))
        reason = f"the tool bonus needs the reward {bonus.accuracy!r} in the run, and it must score single trajectories"
        fix = " or ".join([f"add [[reward]] id = {bonus.accuracy!r}", *(f"{key}={id}" for id in usable)])
        yield failure(key, f"{reason}: the run has {', '.join(usable) or 'no such reward'}", fix)


__all__ = ["check", "check_tool_bonus"]
