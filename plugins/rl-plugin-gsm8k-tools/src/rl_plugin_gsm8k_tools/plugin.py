"""The hook implementations of this plugin."""

from __future__ import annotations

from rlcore.specs import DatasetSpec, EnvironmentSpec, ToolParserSpec, ToolSpec

_PACKAGE = "rl_plugin_gsm8k_tools"

rlcore_specs = [
    EnvironmentSpec(
        id="gsm8k-tools",
        target=f"{_PACKAGE}.environment:Gsm8kTools",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="Word problems, solved with a calculator.",
    ),
    ToolSpec(
        id="calculator",
        target=f"{_PACKAGE}.calculator:calculator",
        summary="Exact arithmetic; never evaluates code.",
    ),
    ToolParserSpec(
        id="gsm8k",
        target=f"{_PACKAGE}.annotations:AnnotationParser",
        summary="Calculator calls as <<48/2>>, GSM8K's own notation.",
    ),
    DatasetSpec(
        id="gsm8k-tools",
        target=f"{_PACKAGE}.dataset:Gsm8kData",
        config=f"{_PACKAGE}.config:DataConfig",
        prepare=f"{_PACKAGE}.prepare:prepare",
        prepare_config=f"{_PACKAGE}.config:PrepareConfig",
        summary="Question and answer rows from JSON, JSONL or parquet files, or generated problems.",
    ),
    DatasetSpec(
        id="gsm8k-preferences",
        target=f"{_PACKAGE}.preferences:Gsm8kPreferences",
        config=f"{_PACKAGE}.config:PreferenceDataConfig",
        summary="Generated problems with a right and a wrong calculation, for preference training.",
    ),
]
