"""The components of rlcore-harness."""

from __future__ import annotations

from rlcore.specs import CommandSpec, DatasetSpec, EnvironmentSpec, RewardSpec

_PACKAGE = "rlcore_harness"
MOST_AGENTS = 32
"""Agents at a time. Each has a process, which often takes more than 100 MB; rollout.concurrency is 256 by default."""

rlcore_specs = [
    EnvironmentSpec(
        id="harness",
        target=f"{_PACKAGE}.environment:AgentHarness",
        config=f"{_PACKAGE}.config:HarnessConfig",
        summary="An agent in any framework, with its own loop, which asks the policy over HTTP.",
        max_concurrency=MOST_AGENTS,
        check=f"{_PACKAGE}.checks:check",
    ),
    RewardSpec(
        id="harness-return",
        target=f"{_PACKAGE}.reward:harness_return",
        summary="The sum of the rewards that the agent returns or reports.",
        minimum=-float("inf"),
        maximum=float("inf"),
        rewards_silence=True,
    ),
    DatasetSpec(
        id="harness",
        target=f"{_PACKAGE}.dataset:HarnessData",
        config=f"{_PACKAGE}.config:DataConfig",
        summary="Rows with prompts from JSON, JSONL or parquet files, or generated tasks.",
    ),
    CommandSpec(
        id="serve policy", target=f"{_PACKAGE}.cli:serve_policy", summary="Answer agents with the policy of a run."
    ),
]
