"""Specs of components, which refer to classes by strings. Classes are imported when selected, not when listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from rlcore.models.shape import ModelShape

CONTRACT_VERSION = 1
"""The version of the contracts that this rlcore supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A component that a plugin registers."""

    hook: ClassVar[str] = "rlcore_reward_terms"
    """The hook that registers specs of this type; a term of a world model's reward is a plain `Spec`."""

    id: str
    """Kebab-case, unique among the specs of its kind: ``gsm8k-tools``."""
    target: str
    """``module:attribute`` of the class or function."""
    config: str | None = None
    """``module:attribute`` of the pydantic model that validates the component's table."""
    summary: str = ""
    """One line for ``rlcore plugins list``."""
    needs: tuple[str, ...] = ()
    """Additional requirements in pip syntax, reported when missing; ``a | b`` means either of them."""
    advice: str = ""
    """Further advice when they are missing, if ``pip install`` with the first alternative is not enough."""
    contract: int = CONTRACT_VERSION
    """The version of the contract that the component was written for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec(Spec):
    """An environment; ``target(config)`` creates one instance per trajectory."""

    hook: ClassVar[str] = "rlcore_environments"
    action: Literal["chat", "control"] = "chat"
    """The kind of action that a step takes; see `SamplerSpec.actions`."""
    modalities: frozenset[str] = frozenset({"text"})
    """Modalities of the observations, which the engine must accept."""
    blocking: bool = False
    """Whether its synchronous methods block; they then run in threads."""
    max_concurrency: int | None = None
    """Maximum number of concurrent instances; None for no limit."""
    runs_code: bool = False
    """Whether it runs code in `EpisodeContext.sandbox`. The run then checks at its start that there is a sandbox."""
    check: str | None = None
    """``module:attribute`` of ``check(run, environment)`` with a `ResolvedEnvironment`. Before a run starts, it yields
    `rlcore.checks.Finding`: failures for conflicting settings, warnings for those that are valid but unusual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSpec(Spec):
    """A reward; ``target`` is a function, or a class that is instantiated once per run with ``target(config)``."""

    hook: ClassVar[str] = "rlcore_rewards"
    scope: Literal["trajectory", "group"] = "trajectory"
    minimum: float = 0.0
    maximum: float = 1.0
    runs_code: bool = False
    """As in `EnvironmentSpec`."""
    rewards_silence: bool = False
    """Whether an empty answer may score more than the minimum, as for a reward for brevity (`rlcore.testing`)."""
    probe: str | None = None
    """``module:attribute`` of ``probe(config)``, which yields `rlcore.checks.Finding`. It asks the services of the
    reward once; ``rlcore doctor -p PLUGIN`` calls it for each table of the reward."""
    check: str | None = None
    """``module:attribute`` of ``check(run, environment, index)`` for the reward with this index in the list ``rewards``
    of a `ResolvedEnvironment`; otherwise as `EnvironmentSpec.check`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec(Spec):
    """A tool; ``target`` is a function, or a class that is instantiated for each episode."""

    hook: ClassVar[str] = "rlcore_tools"
    runs_code: bool = False
    """As in `EnvironmentSpec`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec(Spec):
    """A dataset, created with ``target(config)``.

    A target that declares the keyword ``environment`` receives a function that creates an environment of the run, or
    None if the run has none. One that declares ``importable`` receives a function of names of modules: it returns those
    that code can import in the sandbox of the run, or None if the run can use no sandbox.

    ``prepare`` implements ``rlcore data prepare ID``, and ``label`` implements ``rlcore data label ID``.
    """

    hook: ClassVar[str] = "rlcore_datasets"
    prepare: str | None = None
    """``module:attribute`` of ``prepare(config) -> Mapping[str, object]`` (a summary to print)."""
    prepare_config: str | None = None
    label: str | None = None
    """``module:attribute`` of ``label(config) -> Mapping[str, object]`` (a summary to print)."""
    label_config: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSpec(Spec):
    """A recipe; ``target`` is ``module:path/inside/the/package.toml``; the id is ``PLUGIN/NAME``."""

    hook: ClassVar[str] = "rlcore_recipes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSpec(Spec):
    """A tracker, created with ``target(config, run_directory)``."""

    hook: ClassVar[str] = "rlcore_trackers"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec(Spec):
    """``rlcore ID``; ``target`` is a `click.Command`."""

    hook: ClassVar[str] = "rlcore_commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec(Spec):
    """A check of ``rlcore doctor``; ``target()`` yields `rlcore.checks.Finding`."""

    hook: ClassVar[str] = "rlcore_checks"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisSpec(Spec):
    """A rule about why a run does not learn. The ``summary`` is its sentence.

    ``target`` is a function of `rlcore.diagnosis.evidence.Evidence`. It is called after each step until it returns what
    it found, such as ``16 of 16 groups``; None if it does not hold.
    """

    hook: ClassVar[str] = "rlcore_diagnoses"
    key: str = ""
    """The dotted key of the configuration to change first."""
    fix: str = ""
    """What to do, and what to look at."""
    metrics: tuple[str, ...] = ()
    """The metrics that the rule reads, for the guide."""
    guide: str = ""
    """Where it is explained: a path or an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigAdapterSpec(Spec):
    """A translator for the configuration of another system.

    ``target`` is an object that implements `OverrideAdapter` or `FileAdapter` of `rlcore.config.adapters`, or both.
    """

    hook: ClassVar[str] = "rlcore_config_adapters"
    overrides: bool = False
    """Whether it translates ``key=value`` overrides. It is then imported by every command with overrides."""
    files: tuple[tuple[str, ...], ...] = ()
    """Sets of top-level keys, such as ``(("lab",), ("model_path", "pipeline"))``. The config adapter translates a file
    that has all keys of one set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOnDevice:
    """The model of a run and the device that holds it, from which memory is estimated."""

    shape: ModelShape
    element_bytes: int
    """Bytes of one weight in memory."""
    gpu_bytes: int | None = None
    """Total memory of the GPU; None on a CPU."""


GAPS = "gaps in the heap"
"""Name of a part of `MemoryNeeds`; see `rlcore.models.freed_memory`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """The memory that a component expects to need."""

    parts: Mapping[str, int] = field(default_factory=dict)
    """Bytes by purpose that are held during the whole run, such as ``weights``."""
    phases: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Further bytes by purpose that are held only during a phase, such as ``activations`` in the phase ``update``.
    Phases do not overlap, so only the largest counts. Two components that name the same phase need both at once. What
    is named `GAPS` is needed only on a CPU, and only if freed memory is kept for reuse."""
    checkpoint: int = 0
    """Bytes of one checkpoint on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec(Spec):
    """An engine, created with ``target(config, source, context)`` from a `WeightSource` and an `EngineContext`."""

    hook: ClassVar[str] = "rlcore_engines"
    trains: bool = True
    """Whether it samples from weights that a trainer updates."""
    speaks: Literal["tokens", "messages"] = "tokens"
    """Whether it is an `Engine`, or a `ChatEngine`, which has its own model and needs no ``model.path``."""
    shared: bool = False
    """Whether a run with several processes has one, in its main process, which samples for all of them."""
    modalities: frozenset[str] = frozenset({"text"})
    """Modalities that it accepts; an environment with others is rejected."""
    starts: str = ""
    """What creating it starts outside of this process, such as ``vLLM``, which a dry run leaves out; else empty."""
    memory: str | None = None
    """``module:attribute`` of ``memory(run, model) -> MemoryNeeds``, with a `ModelOnDevice`."""
    unserved: tuple[tuple[str, str], ...] = ()
    """Unsupported configuration keys, such as ``lora.dora``, each with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSpec(Spec):
    """A sampler, created with ``target(components, source, report)``.

    It receives `rlcore.session.components.RunComponents`, a `WeightSource` and a `rlcore.runs.progress.Report`, so that
    it can be created in another process.
    """

    hook: ClassVar[str] = "rlcore_samplers"
    actions: frozenset[str] = frozenset({"chat"})
    """The kinds of `EnvironmentSpec.action` that it can run."""
    shared: bool = False
    """Whether a run with several processes has one, in its main process, which samples for all of them."""
    check: str | None = None
    """``module:attribute`` of ``check(run)``, as `EnvironmentSpec.check`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec(Spec):
    """What acts in environments of another kind than chat: a `rlcore_trainer.policy.policy.Policy`.

    ``target.load(folder, dtype=..., device=...)`` loads it.
    """

    hook: ClassVar[str] = "rlcore_policies"
    action: str
    """The kind of `EnvironmentSpec.action` that it chooses."""
    warm_up: str
    """``module:attribute`` of the function that imitates demonstrations, such as `rlcore_control.cloning.clone`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionModelSpec(Spec):
    """A family of robot policies.

    ``target(config, folder)`` reads one as a `rlcore_control.models.action_model.ActionModel`.
    """

    hook: ClassVar[str] = "rlcore_action_models"
    marks: frozenset[tuple[str, str]]
    """Keys of ``config.json`` with their values, of which a folder of the family has at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParserSpec(Spec):
    """A tool-call parser, created with ``target()``."""

    hook: ClassVar[str] = "rlcore_tool_parsers"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec(Spec):
    """A sandbox for code generated by a model: a `rlcore.contracts.Sandbox`.

    It is created with ``target(config, limits)``: the validated options, None without a ``config``, and the
    `SandboxLimits` of the run. The keys of ``config`` are in the table ``[sandbox]``. Creating it starts nothing.
    """

    hook: ClassVar[str] = "rlcore_sandboxes"
    strength: int | None = None
    """Rank for ``sandbox.id = "auto"``, which uses the highest one that is available: 100 if code is confined to
    namespaces of its own, 50 if only its access is restricted. None: only used if the run names it."""
    available: str | None = None
    """``module:attribute`` of ``available(config) -> SandboxSupport``, with the validated options, or None for a spec
    without ``config`` or outside of a run. A parameter ``limits`` receives the `SandboxLimits`. It takes at most
    seconds. None: available everywhere, without guarantees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFormatSpec(Spec):
    """A chat format, created with ``target(folder)`` from a folder with a tokenizer.

    These arguments are passed by name if the run sets them: ``parser``, a tool-call parser; ``template_kwargs``, the
    table ``model.chat_template_kwargs``; ``template``, the path of ``model.chat_template``; ``hide_tools``, True.
    """

    hook: ClassVar[str] = "rlcore_chat_formats"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec(Spec):
    """A trainer, created with ``target(run)``. ``tables`` lists the additional top-level tables that it reads."""

    hook: ClassVar[str] = "rlcore_trainers"
    tables: tuple[tuple[str, str], ...] = ()
    """Pairs of table name and ``module:attribute`` of its model, such as ``("algorithm", "…:AlgorithmConfig")``."""
    needs_environment: bool = True
    """Whether a run requires an environment and rewards; if not, both are optional."""
    quantizes: bool = False
    """Whether it supports ``model.quantization``. Other trainers reject a quantised base model."""
    shards: bool = False
    """Whether it passes its models to the strategy, which may divide their weights between processes."""
    check: str | None = None
    """``module:attribute`` of ``check(run)``, as `EnvironmentSpec.check`."""
    memory: str | None = None
    """``module:attribute`` of ``memory(run, model) -> MemoryNeeds``, with a `ModelOnDevice`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec(Spec):
    """An advantage estimator, a policy loss, or a loss of preferences.

    ``target`` is a function with one of the decorators of `rlcore_trainer.algorithms`, another function of the inputs,
    or a class that is instantiated once per run with ``target(config)`` (``target()`` without ``config``) and called
    with the inputs. ``config``, or the attribute ``Config`` of the target, is the model of ``[algorithm.advantage]``,
    ``[algorithm.loss]`` or ``[preference.loss]``. Requirements such as a critic are declared as ``traits``; see
    `rlcore_trainer.algorithms.interface`.
    """

    hook: ClassVar[str] = "rlcore_algorithms"
    part: Literal["advantage", "loss", "preference_loss"] = "advantage"
    needs_rewards: bool = True
    """Whether a run with this advantage requires a reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySpec(Spec):
    """A strategy that distributes a training step over devices, created with ``target(config)``."""

    hook: ClassVar[str] = "rlcore_strategies"
    launch: str | None = None
    """``module:attribute`` of ``launch(run, arguments)``. It returns the `rlcore.session.processes.Processes` that this
    process belongs to, or a function that starts them, each as ``rlcore`` with these arguments, and returns their exit
    status. None for a strategy with a single process."""
    check: str | None = None
    """``module:attribute`` of ``check(run)``, as `EnvironmentSpec.check`, for processes and devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBuilderSpec(Spec):
    """``builtin:ID``: ``target(folder, texts, seed, config)`` writes a Hugging Face folder.

    A target that declares the keyword ``environment`` receives a function that creates an environment of the run, or
    None.
    """

    hook: ClassVar[str] = "rlcore_models"
