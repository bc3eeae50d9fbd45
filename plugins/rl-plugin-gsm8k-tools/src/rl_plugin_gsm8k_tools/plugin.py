"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, EnvironmentSpec, ToolParserSpec, ToolSpec

_PACKAGE = "rl_plugin_gsm8k_tools"


@hookimpl
def rlcore_environments() -> Iterable[EnvironmentSpec]:
    """The environment."""
    yield EnvironmentSpec(
        id="gsm8k-tools",
        target=f"{_PACKAGE}.environment:Gsm8kTools",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="Word problems, solved with a calculator.",
    )


@hookimpl
def rlcore_tools() -> Iterable[ToolSpec]:
    """The calculator."""
    yield ToolSpec(
        id="calculator",
        target=f"{_PACKAGE}.calculator:calculator",
        summary="Exact arithmetic; never evaluates code.",
    )


@hookimpl
def rlcore_tool_parsers() -> Iterable[ToolParserSpec]:
    """Calls in GSM8K's own notation."""
    yield ToolParserSpec(
        id="gsm8k",
        target=f"{_PACKAGE}.annotations:AnnotationParser",
        summary="Calculator calls as <<48/2>>, GSM8K's own notation.",
    )


@hookimpl
def rlcore_datasets() -> Iterable[DatasetSpec]:
    """GSM8K files or generated problems."""
    yield DatasetSpec(
        id="gsm8k-tools",
        target=f"{_PACKAGE}.dataset:Gsm8kData",
        config=f"{_PACKAGE}.config:DataConfig",
        prepare=f"{_PACKAGE}.prepare:prepare",
        prepare_config=f"{_PACKAGE}.config:PrepareConfig",
        summary="Question and answer rows from JSON, JSONL or parquet files, or generated problems.",
    )
