"""Checks of the settings of the environment and the tool bonus before a run starts."""

from __future__ import annotations

from typing import Any

from rlcore.errors import UserError

from rl_plugin_visual_search.config import DataConfig, ToolBonusConfig
from rl_plugin_visual_search.grammar import END_OF_CODE


def check(run: Any, environment: Any) -> list[str]:
    """Warn about turns that do not end after their code, and about episodes without a turn for a tool.

    Args:
        run: a `rlcore.session.session.RunSession`
        environment: a `rlcore.config.environments.ResolvedEnvironment`
    """
    data, notes = environment.data, []
    if not isinstance(data, DataConfig):
        return []
    if data.tools != "none" and environment.options.max_turns == 1:
        notes.append(
            "environment.max_turns=1 leaves no turn for a tool, because nothing is run in the last turn; set it to 2 "
            "or more, or set data.tools=none"
        )
    if data.runs_code and not any(text.endswith(END_OF_CODE) for text in run.config.rollout.stop):
        notes.append(
            f"generation does not stop after {END_OF_CODE}: a model may go on and write the output of its code itself, "
            f"up to rollout.max_new_tokens; set rollout.stop='[\"{END_OF_CODE}\"]'"
        )
    return notes


def check_tool_bonus(run: Any, environment: Any, index: int) -> list[str]:
    """Reject a tool bonus whose accuracy is not a reward of single trajectories in the run.

    Args:
        run: a `rlcore.session.session.RunSession`
        environment: a `rlcore.config.environments.ResolvedEnvironment`
        index: of the bonus in the rewards of the environment

    Raises:
        UserError: there is no such reward.
    """
    bonus = environment.reward_options[index]
    specs = [run.registry.spec("reward", table.id) for table in environment.rewards]
    usable = [spec.id for spec in specs if spec.scope == "trajectory"]
    if not isinstance(bonus, ToolBonusConfig) or bonus.accuracy in usable:
        return []
    key = (*environment.at("reward"), str(index), "accuracy")
    raise UserError(
        f"the tool bonus needs the reward {bonus.accuracy!r} in the run, and it must score single trajectories",
        found=f"the run has {', '.join(usable) or 'no such reward'}",
        where=run.resolved.origin(key),
        fix=" or ".join([f"add [[reward]] id = {bonus.accuracy!r}", *(f"{'.'.join(key)}={id}" for id in usable)]),
    )


__all__ = ["check", "check_tool_bonus"]
