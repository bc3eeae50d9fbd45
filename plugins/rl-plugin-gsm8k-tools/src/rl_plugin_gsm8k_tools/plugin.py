"""What this distribution offers to rlcore."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, EnvironmentSpec, RecipeSpec, ToolSpec

_PACKAGE = "rl_plugin_gsm8k_tools"


@hookimpl
def rlcore_environments() -> Iterable[EnvironmentSpec]:
    """A chat with tools."""
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
def rlcore_datasets() -> Iterable[DatasetSpec]:
    """GSM8K in any of its forms, or generated problems."""
    yield DatasetSpec(
        id="gsm8k-tools",
        target=f"{_PACKAGE}.dataset:Gsm8kData",
        config=f"{_PACKAGE}.config:DataConfig",
        prepare=f"{_PACKAGE}.prepare:prepare",
        prepare_config=f"{_PACKAGE}.config:PrepareConfig",
        summary="Question and answer rows from JSON, JSONL or parquet, or generated on the spot.",
    )


@hookimpl
def rlcore_recipes() -> Iterable[RecipeSpec]:
    """Those that run anywhere, by reinforcement and by imitation, and those with a real model."""
    yield RecipeSpec(
        id="gsm8k-tools/default",
        target=f"{_PACKAGE}:recipes/default.toml",
        summary="A tiny model learns which operation the words mean: minutes on two cores.",
    )
    yield RecipeSpec(
        id="gsm8k-tools/sft",
        target=f"{_PACKAGE}:recipes/sft.toml",
        summary="A tiny model imitates demonstrations with the calculator: a minute on two cores.",
    )
    yield RecipeSpec(
        id="gsm8k-tools/qwen2.5-3b",
        target=f"{_PACKAGE}:recipes/qwen2.5-3b.toml",
        summary="Qwen2.5-3B-Instruct on GSM8K with a calculator, on a GPU.",
    )
    yield RecipeSpec(
        id="gsm8k-tools/qwen2.5-3b-sft",
        target=f"{_PACKAGE}:recipes/qwen2.5-3b-sft.toml",
        summary="Qwen2.5-3B-Instruct imitates GSM8K's worked solutions, on a GPU.",
    )
    yield RecipeSpec(
        id="gsm8k-tools/qwen2.5-3b-grpo",
        target=f"{_PACKAGE}:recipes/qwen2.5-3b-grpo.toml",
        summary="Qwen2.5-3B-Instruct goes on by GRPO or GSPO with the values of a published chain, on a GPU.",
    )
