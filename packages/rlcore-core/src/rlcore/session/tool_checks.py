"""Check that the model is shown the tools of a run, before its weights are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.abilities import ToolsConfig
from rlcore.episodes.tool_environment import ToolEnvironment
from rlcore.errors import RlcoreError
from rlcore.plugins.registry import asked
from rlcore.session.image_checks import uses_tokens
from rlcore.types import Message, ToolSchema

if TYPE_CHECKING:
    from rlcore.config.environments import ResolvedEnvironment
    from rlcore.session.components import RunComponents


def check_tools_of_environments(run: RunComponents, folder: Path) -> None:
    """Render a question with the tools of each environment, as far as they are known before its first episode.

    Raises:
        UserError: the chat format of the model folder cannot show them.
    """
    for one in run.environments:
        if uses_tokens(run) and (tools := _tools(run, one)):
            check_tools(run, folder, tools)


def check_tools(run: RunComponents, folder: Path, tools: Sequence[ToolSchema]) -> None:
    """Render a question with tools. Raises as `check_tools_of_environments`."""
    try:
        chat_format, named = run.chat_format(folder), run.registry.named("chat_format", run.chat_format_id(folder))
    except RlcoreError:
        return  # a part of the run that needs the chat format reports this; others run without one
    asked(f"prompt of {named}", chat_format.prompt, (Message(role="user", content="Hello"),), tools)


def _tools(run: RunComponents, one: ResolvedEnvironment) -> Sequence[ToolSchema]:
    """The tools that an environment offers in every episode."""
    if one.python is None:
        target = run.load("environment", one.id)
        if isinstance(target, type) and issubclass(target, ToolEnvironment):
            return [tool.schema for tool in run.environment(one.name).tools.values()]  # type: ignore[attr-defined]
    if isinstance(one.options, ToolsConfig) and isinstance(one.options.tools, (list, tuple)):
        return [tool_named(id) for id in one.options.tools]
    return ()


def tool_named(name: str) -> ToolSchema:
    """A stand-in for a tool of which only the name is known."""
    return ToolSchema(name=name, description="", parameters={"type": "object", "properties": {}})


__all__ = ["check_tools", "check_tools_of_environments", "tool_named"]
