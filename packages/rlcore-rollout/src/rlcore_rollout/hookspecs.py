"""The hooks of rlcore-rollout, which register rollout components."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookspec

if TYPE_CHECKING:
    from rlcore.specs import ChatFormatSpec, EngineSpec, SamplerSpec, ToolParserSpec


@hookspec
def rlcore_engines() -> Iterable[EngineSpec]:  # type: ignore[empty-body]
    """Register engines. Called once, when an engine is first requested."""


@hookspec
def rlcore_samplers() -> Iterable[SamplerSpec]:  # type: ignore[empty-body]
    """Register samplers."""


@hookspec
def rlcore_tool_parsers() -> Iterable[ToolParserSpec]:  # type: ignore[empty-body]
    """Register tool-call parsers."""


@hookspec
def rlcore_chat_formats() -> Iterable[ChatFormatSpec]:  # type: ignore[empty-body]
    """Register chat formats."""


@hookspec(firstresult=True)
def rlcore_chat_format(folder: Path) -> str | None:
    """Return the chat format id for a folder that contains a tokenizer, or None if the plugin does not recognise it."""
