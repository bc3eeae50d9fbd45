"""rlcore trains agents with reinforcement learning. Plugins import from this module; its names are loaded on use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.api.evaluation import Evaluation, evaluate
    from rlcore.api.runs import Run, load_run
    from rlcore.api.sessions import open_session
    from rlcore.api.training import train
    from rlcore.config.schema import Table
    from rlcore.contracts import (
        ChatEngine,
        ChatFormat,
        Dataset,
        Engine,
        Environment,
        GroupReward,
        NamedTensor,
        Reward,
        Sampler,
        Sandbox,
        SandboxSession,
        TokenSampler,
        ToolCallParser,
        Tracker,
        Trainer,
        WeightSource,
    )
    from rlcore.episodes.context import EpisodeContext
    from rlcore.episodes.tool import ToolError, ToolResult, tool
    from rlcore.episodes.tool_environment import ToolEnvironment
    from rlcore.errors import (
        ConfigError,
        ContextFullError,
        DataError,
        EngineError,
        EnvironmentFailure,
        NotInstalledError,
        PluginError,
        RlcoreError,
        SandboxFailure,
        ToolFailure,
        UserError,
    )
    from rlcore.hookspecs import hookimpl, hookspec
    from rlcore.plugins.registry import Registry
    from rlcore.specs import (
        CONTRACT_VERSION,
        AlgorithmSpec,
        ChatFormatSpec,
        CheckSpec,
        CommandSpec,
        ConfigAdapterSpec,
        DatasetSpec,
        DiagnosisSpec,
        EngineSpec,
        EnvironmentSpec,
        ModelBuilderSpec,
        RecipeSpec,
        RewardSpec,
        SamplerSpec,
        SandboxSpec,
        Spec,
        StrategySpec,
        ToolParserSpec,
        ToolSpec,
        TrackerSpec,
        TrainerSpec,
    )
    from rlcore.types import (
        Boundary,
        ChatCompletion,
        CodeResult,
        Completion,
        Demonstration,
        Failure,
        Group,
        ImagePart,
        Logprobs,
        LossMask,
        MediaSpan,
        Message,
        NumberArray,
        Observation,
        Preference,
        Prompt,
        RecordedEpisode,
        RewardResult,
        RolloutKey,
        RolloutRequest,
        Sampling,
        SandboxLimits,
        SandboxSupport,
        Segment,
        Step,
        Stop,
        Task,
        TextPart,
        TokenIds,
        ToolCall,
        ToolSchema,
        Trajectory,
        Turn,
        VersionSpan,
    )

    __version__: str

_HOMES = {
    "api.evaluation": "Evaluation evaluate",
    "api.runs": "Run load_run",
    "api.sessions": "open_session",
    "api.training": "train",
    "config.schema": "Table",
    "contracts": "ChatEngine ChatFormat Dataset Engine Environment Sampler GroupReward NamedTensor Reward Sandbox"
    " SandboxSession TokenSampler ToolCallParser Tracker Trainer WeightSource",
    "errors": "ConfigError ContextFullError DataError EngineError EnvironmentFailure NotInstalledError PluginError"
    " RlcoreError SandboxFailure ToolFailure UserError",
    "hookspecs": "hookimpl hookspec",
    "plugins.registry": "Registry",
    "specs": "CONTRACT_VERSION AlgorithmSpec ChatFormatSpec CheckSpec CommandSpec DatasetSpec DiagnosisSpec"
    " ConfigAdapterSpec EngineSpec EnvironmentSpec SamplerSpec ModelBuilderSpec RecipeSpec RewardSpec SandboxSpec Spec"
    " StrategySpec ToolParserSpec ToolSpec TrackerSpec TrainerSpec",
    "episodes.context": "EpisodeContext",
    "episodes.tool": "ToolError ToolResult tool",
    "episodes.tool_environment": "ToolEnvironment",
    "types": "Boundary ChatCompletion CodeResult Completion Demonstration Failure Group ImagePart Logprobs LossMask"
    " MediaSpan Message NumberArray Observation Preference Prompt RecordedEpisode RewardResult RolloutKey"
    " RolloutRequest Sampling SandboxLimits SandboxSupport Segment Step Stop Task TextPart TokenIds ToolCall ToolSchema"
    " Trajectory Turn VersionSpan",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "CONTRACT_VERSION",
    "AlgorithmSpec",
    "Boundary",
    "ChatCompletion",
    "ChatEngine",
    "ChatFormat",
    "ChatFormatSpec",
    "CheckSpec",
    "CodeResult",
    "CommandSpec",
    "Completion",
    "ConfigAdapterSpec",
    "ConfigError",
    "ContextFullError",
    "DataError",
    "Dataset",
    "DatasetSpec",
    "Demonstration",
    "DiagnosisSpec",
    "Engine",
    "EngineError",
    "EngineSpec",
    "Environment",
    "EnvironmentFailure",
    "EnvironmentSpec",
    "EpisodeContext",
    "Evaluation",
    "Failure",
    "Group",
    "GroupReward",
    "ImagePart",
    "Logprobs",
    "LossMask",
    "MediaSpan",
    "Message",
    "ModelBuilderSpec",
    "NamedTensor",
    "NotInstalledError",
    "NumberArray",
    "Observation",
    "PluginError",
    "Preference",
    "Prompt",
    "RecipeSpec",
    "RecordedEpisode",
    "Registry",
    "Reward",
    "RewardResult",
    "RewardSpec",
    "RlcoreError",
    "RolloutKey",
    "RolloutRequest",
    "Run",
    "Sampler",
    "SamplerSpec",
    "Sampling",
    "Sandbox",
    "SandboxFailure",
    "SandboxLimits",
    "SandboxSession",
    "SandboxSpec",
    "SandboxSupport",
    "Segment",
    "Spec",
    "Step",
    "Stop",
    "StrategySpec",
    "Table",
    "Task",
    "TextPart",
    "TokenIds",
    "TokenSampler",
    "ToolCall",
    "ToolCallParser",
    "ToolEnvironment",
    "ToolError",
    "ToolFailure",
    "ToolParserSpec",
    "ToolResult",
    "ToolSchema",
    "ToolSpec",
    "Tracker",
    "TrackerSpec",
    "Trainer",
    "TrainerSpec",
    "Trajectory",
    "Turn",
    "UserError",
    "VersionSpan",
    "WeightSource",
    "evaluate",
    "hookimpl",
    "hookspec",
    "load_run",
    "open_session",
    "tool",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("rlcore-core")
        except PackageNotFoundError:
            return "0.1.0"
    if name not in _HOME_OF:
        raise AttributeError(f"module 'rlcore' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"rlcore.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
