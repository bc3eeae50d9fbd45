"""What plugins offer, as strings: a class is imported when it is first selected, never to be listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CONTRACT_VERSION = 1
"""The version of the contracts that this rlcore speaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One offered component."""

    id: str
    """Kebab-case, unique among the specs of its kind: ``gsm8k-tools``."""
    target: str
    """``module:attribute`` of the class or function."""
    config: str | None = None
    """``module:attribute`` of the pydantic model that validates the component's table."""
    summary: str = ""
    """One line for ``rlcore plugins list``."""
    needs: tuple[str, ...] = ()
    """Requirements in pip syntax beyond the plugin's own, named when they are missing; ``a | b`` is met by either."""
    advice: str = ""
    """What else helps when they are missing, where ``pip install`` with the first of them is not all."""
    contract: int = CONTRACT_VERSION
    """The version of the contract that the component was written for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec(Spec):
    """An environment; ``target(config)`` makes one for each trajectory."""

    action: Literal["chat", "control"] = "chat"
    modalities: frozenset[str] = frozenset({"text"})
    blocking: bool = False
    """Plain methods that wait or compute: they run in threads."""
    max_concurrency: int | None = None
    """How many may be alive at a time; None for any number."""
    isolation: Literal["process", "none"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSpec(Spec):
    """A reward; ``target`` is the function itself, or a class of which ``target(config)`` is made once for a run."""

    scope: Literal["trajectory", "group"] = "trajectory"
    minimum: float = 0.0
    maximum: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec(Spec):
    """A tool; ``target`` is the function itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec(Spec):
    """A dataset; ``target(config)`` makes it. ``prepare`` backs ``rlcore data prepare ID``."""

    prepare: str | None = None
    """``module:attribute`` of ``prepare(config) -> Mapping[str, object]`` (a summary to print)."""
    prepare_config: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSpec(Spec):
    """A recipe; ``target`` is ``module:path/inside/the/package.toml``; the id is ``PLUGIN/NAME``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSpec(Spec):
    """A tracker; ``target(config, run_directory)`` makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec(Spec):
    """``rlcore ID``; ``target`` is a `click.Command`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec(Spec):
    """A check of ``rlcore doctor``; ``target()`` yields `rlcore.doctor.Finding`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec(Spec):
    """An engine; ``target(config, source, context)`` makes it from a `WeightSource` and an `EngineContext`."""

    trains: bool = True
    """Whether it samples from weights that a trainer updates."""
    speaks: Literal["tokens", "messages"] = "tokens"
    """Whether it is an `Engine` or a `ChatEngine`, which brings a model of its own and needs no ``model.path``."""
    unserved: tuple[tuple[str, str], ...] = ()
    """Keys that it cannot sample with, such as ``lora.dora``, each with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSpec(Spec):
    """An executor; ``target(run, source)`` makes it from a `rlcore.run.Run` and a `WeightSource`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParserSpec(Spec):
    """A tool-call parser; ``target()`` makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec(Spec):
    """A sandbox for code that a model wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFormatSpec(Spec):
    """A chat format; ``target(folder)`` makes it from a folder with a tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec(Spec):
    """A trainer; ``target(run)`` makes it. ``tables`` names the models of further top-level tables that it reads."""

    tables: tuple[tuple[str, str], ...] = ()
    """Pairs of table name and ``module:attribute`` of its model, such as ``("algorithm", "…:AlgorithmConfig")``."""
    needs_environment: bool = True
    """Whether a run has to have an environment and rewards; without it, either may be left out."""
    quantizes: bool = False
    """Whether it holds the base as ``model.quantization`` asks; with any other trainer a quantised base is refused."""
    check: str | None = None
    """``module:attribute`` of ``check(run)``: raises the `UserError` of tables that contradict each other, and returns
    a sentence for each thing that is allowed and may surprise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec(Spec):
    """An advantage estimator or a policy loss: a pure function.

    Its parameters are its needs: positional ones name what it is given of a rollout (``rewards_N``, ``groups_N``, …),
    keyword-only ones the keys of ``[algorithm]`` that it reads. A spec may say both, so that a run is checked before
    the function is imported.
    """

    part: Literal["advantage", "loss"] = "advantage"
    reads: tuple[str, ...] | None = None
    """Names of its positional parameters; None lets its signature tell."""
    options: tuple[str, ...] | None = None
    """Names of its keyword-only parameters; None lets its signature tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySpec(Spec):
    """How a training step is spread over devices; ``target(config)`` makes it."""

    launch: str | None = None
    """``module:attribute`` of ``launch(run, arguments)``: gives the `rlcore.processes.Processes` that this one is
    among, or a function that starts them, each as ``rlcore`` with these arguments, and gives their exit status. None
    is a strategy of one process."""
    check: str | None = None
    """``module:attribute`` of ``check(run)``: raises the `UserError` of processes or devices that cannot be had, and
    returns a sentence for each thing that is allowed and may surprise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBuilderSpec(Spec):
    """``builtin:ID``: ``target(folder, texts, seed, config)`` writes a Hugging Face folder."""
