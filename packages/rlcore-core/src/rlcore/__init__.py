"""rlcore trains agents that act with a model. This module is what plugins import; it imports nothing until asked."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.config.schema import Table
    from rlcore.contracts import (
        ChatEngine,
        ChatFormat,
        Dataset,
        Engine,
        Environment,
        Executor,
        GroupReward,
        Reward,
        ToolCallParser,
        Tracker,
        Trainer,
        WeightSource,
    )
    from rlcore.errors import (
        ConfigError,
        ContextFullError,
        DataError,
        EngineError,
        EnvironmentFailure,
        NotInstalledError,
        PluginError,
        RlcoreError,
        UserError,
    )
    from rlcore.hookspecs import hookimpl, hookspec
    from rlcore.registry import Registry
    from rlcore.specs import (
        CONTRACT_VERSION,
        AlgorithmSpec,
        ChatFormatSpec,
        CheckSpec,
        CommandSpec,
        DatasetSpec,
        EngineSpec,
        EnvironmentSpec,
        ExecutorSpec,
        ModelBuilderSpec,
        RecipeSpec,
        RewardSpec,
        SandboxSpec,
        Spec,
        StrategySpec,
        ToolParserSpec,
        ToolSpec,
        TrackerSpec,
        TrainerSpec,
    )
    from rlcore.tool import ToolError, ToolResult, tool
    from rlcore.tool_environment import ToolEnvironment
    from rlcore.types import (
        NOT_SCORED,
        ChatCompletion,
        Completion,
        Demonstration,
        EndReason,
        Group,
        ImagePart,
        Message,
        Observation,
        RewardResult,
        RolloutRequest,
        Sampling,
        Step,
        Task,
        TextPart,
        ToolCall,
        ToolSchema,
        Trajectory,
        Turn,
    )

    __version__: str

_HOMES = {
    "config.schema": "Table",
    "contracts": "ChatEngine ChatFormat Dataset Engine Environment Executor GroupReward Reward ToolCallParser Tracker"
    " Trainer WeightSource",
    "errors": "ConfigError ContextFullError DataError EngineError EnvironmentFailure NotInstalledError PluginError"
    " RlcoreError UserError",
    "hookspecs": "hookimpl hookspec",
    "registry": "Registry",
    "specs": "CONTRACT_VERSION AlgorithmSpec ChatFormatSpec CheckSpec CommandSpec DatasetSpec EngineSpec"
    " EnvironmentSpec ExecutorSpec ModelBuilderSpec RecipeSpec RewardSpec SandboxSpec Spec StrategySpec"
    " ToolParserSpec ToolSpec TrackerSpec TrainerSpec",
    "tool": "ToolError ToolResult tool",
    "tool_environment": "ToolEnvironment",
    "types": "NOT_SCORED ChatCompletion Completion Demonstration EndReason Group ImagePart Message Observation"
    " RewardResult RolloutRequest Sampling Step Task TextPart ToolCall ToolSchema Trajectory Turn",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "CONTRACT_VERSION",
    "NOT_SCORED",
    "AlgorithmSpec",
    "ChatCompletion",
    "ChatEngine",
    "ChatFormat",
    "ChatFormatSpec",
    "CheckSpec",
    "CommandSpec",
    "Completion",
    "ConfigError",
    "ContextFullError",
    "DataError",
    "Dataset",
    "DatasetSpec",
    "Demonstration",
    "EndReason",
    "Engine",
    "EngineError",
    "EngineSpec",
    "Environment",
    "EnvironmentFailure",
    "EnvironmentSpec",
    "Executor",
    "ExecutorSpec",
    "Group",
    "GroupReward",
    "ImagePart",
    "Message",
    "ModelBuilderSpec",
    "NotInstalledError",
    "Observation",
    "PluginError",
    "RecipeSpec",
    "Registry",
    "Reward",
    "RewardResult",
    "RewardSpec",
    "RlcoreError",
    "RolloutRequest",
    "Sampling",
    "SandboxSpec",
    "Spec",
    "Step",
    "StrategySpec",
    "Table",
    "Task",
    "TextPart",
    "ToolCall",
    "ToolCallParser",
    "ToolEnvironment",
    "ToolError",
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
    "WeightSource",
    "hookimpl",
    "hookspec",
    "tool",
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


class _Package(ModuleType):
    """Keeps ``rlcore.tool`` the decorator when the import system binds the module of the same name to it."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "tool" and isinstance(value, ModuleType):
            value = value.tool
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
