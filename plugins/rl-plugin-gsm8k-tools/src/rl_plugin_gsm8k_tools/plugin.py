"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, EnvironmentSpec, RecipeSpec, ToolParserSpec, ToolSpec

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


@hookimpl
def rlcore_recipes() -> Iterable[RecipeSpec]:
    """Recipes for a tiny model, SmolLM2-135M and Qwen2.5-3B."""
    yield RecipeSpec(
        id="gsm8k-tools/default",
        target=f"{_PACKAGE}:recipes/default.toml",
        summary="RL with a tiny model on generated problems: minutes on two cores.",
    )
    yield RecipeSpec(
        id="gsm8k-tools/sft",
        target=f"{_PACKAGE}:recipes/sft.toml",
        summary="SFT of a tiny model on calculator demonstrations: a minute on two cores.",
    )
    yield RecipeSpec(
        id="gsm8k-tools/qwen2.5-3b",
        target=f"{_PACKAGE}:recipes/qwen2.5-3b.toml",
        summary="RL with Qwen2.5-3B-Instruct on GSM8K with a calculator, on a GPU.",
    )
    yield RecipeSpec(
        id="gsm8k-tools/qwen2.5-3b-sft",
        target=f"{_PACKAGE}:recipes/qwen2.5-3b-sft.toml",
        summary="SFT of Qwen2.5-3B-Instruct on GSM8K solutions, on a GPU.",
    )
    yield RecipeSpec(
        id="gsm8k-tools/qwen2.5-3b-grpo",
        target=f"{_PACKAGE}:recipes/qwen2.5-3b-grpo.toml",
        summary="GRPO or GSPO after SFT with the values of a published pipeline, on a GPU.",
    )
    yield RecipeSpec(
        id="gsm8k-tools/smollm2-135m-sft",
        target=f"{_PACKAGE}:recipes/smollm2-135m-sft.toml",
        summary="SFT of SmolLM2-135M-Instruct on GSM8K solutions: 45 minutes on two cores.",
    )
    yield RecipeSpec(
        id="gsm8k-tools/smollm2-135m-grpo",
        target=f"{_PACKAGE}:recipes/smollm2-135m-grpo.toml",
        summary="GRPO on GSM8K after smollm2-135m-sft, on two cores.",
    )
