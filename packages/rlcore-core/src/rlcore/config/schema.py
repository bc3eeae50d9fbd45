"""The tables of a run configuration that rlcore itself reads.

Tables of components (``environment``, each ``reward``, ``data``, ``trainer``, ``algorithm``, ``strategy``,
``sampler``, ``rollout.<engine>``) are validated by the model of the component.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from rlcore.types import SandboxLimits

MOST = 2**16
"""Limit of everything that takes memory or time for each one, such as trajectories of a task."""
LARGEST = 2**31 - 1
"""Limit of numbers of steps and tokens."""
Count = Annotated[int, Field(ge=1, le=MOST)]
Texts = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
"""A list, for which a single text can be given."""
Files = Annotated[Texts, Field(min_length=1)]
AUTO = "auto"
"""The id that selects the strongest available sandbox."""
_LIMITS = SandboxLimits()


def _address(text: str) -> str:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/@]+):([0-9]{1,5})", text)
    if found is None or not 0 < int(found[2]) < 2**16:
        raise ValueError("needs HOST:PORT")
    return text


Address = Annotated[str, AfterValidator(_address)]
"""``HOST:PORT`` of a server."""


def _device(text: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", text):
        raise ValueError("needs auto, cpu, cuda or cuda:N")
    return text


class Table(BaseModel):
    """Base class of tables: immutable, rejects unknown keys and non-finite numbers, documents fields by docstring."""

    FIXED: ClassVar[frozenset[str]] = frozenset()
    """Keys that a resumed run cannot change, because they only affect its start."""

    RENAMED: ClassVar[Mapping[str, str]] = {}
    """Earlier names of keys, which are rejected with the present one."""
    FLAGS: ClassVar[Mapping[str, str]] = {}
    """Names of options in other programs, with the key that each of them sets; see `rlcore.cli.data`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class ComponentTable(Table):
    """A table that selects a component by ``id`` and holds the component's own keys."""

    model_config = ConfigDict(extra="allow")

    id: str
    """Component: an id from ``rlcore plugins list``, ``module:Class`` or ``file.py:Class``."""

    @property
    def own(self) -> dict[str, Any]:
        """The component's own keys."""
        return dict(self.model_extra or {})


class RewardTable(ComponentTable):
    """One reward. The total reward of a trajectory is the weighted sum."""

    weight: float = 1.0
    """Weight in the sum; 0 only logs it as a metric."""
    servers: list[Address] = []
    """Servers that compute it, such as ``judges:7071``, started with ``rlcore serve reward``, which has its options;
    empty computes it on this machine."""


def _increasing(weight: float | list[tuple[int, float]]) -> float | list[tuple[int, float]]:
    steps = [step for step, _ in weight] if isinstance(weight, list) else []
    if steps != sorted(set(steps)):
        raise ValueError("needs increasing steps")
    return weight


Share = Annotated[float, Field(ge=0)]
Schedule = Annotated[list[tuple[Annotated[int, Field(ge=0, le=LARGEST)], Share]], Field(min_length=1)]
Weight = Annotated[Share | Schedule, AfterValidator(_increasing)]


class HostedTable(ComponentTable):
    """An environment, and the interpreter in which it runs."""

    python: str | None = None
    """Path of another interpreter in which the environment runs, such as ``/opt/simulator/bin/python``; None runs it in
    this one."""
    variables: dict[str, str] = {}
    """Environment variables of that interpreter, besides those that are passed on."""
    servers: list[Address] = []
    """Servers that run the environment, such as ``simulators:7070``, started with ``rlcore serve environment``; empty
    runs it on this machine."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.python is not None and self.servers:
            raise ValueError("set python or servers: a server runs the environment with its own interpreter")
        return self


class EnvironmentTable(HostedTable):
    """One environment of several, ``[[environment]]``, with its data and rewards."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")] = ""
    """Name in metrics, records and overrides; the id if it is not set."""
    weight: Weight = 1.0
    """Share of the sampled prompts, relative to the other environments. A list of ``[step, weight]`` changes it
    linearly between the steps."""
    data: dict[str, Any] = {}
    """Its dataset, like ``[data]``."""
    reward: list[RewardTable] = []
    """Its rewards, like ``[[reward]]``."""

    def weight_at(self, step: int) -> float:
        """The weight at a step. It is constant before the first and after the last point of a schedule."""
        if not isinstance(self.weight, list):
            return self.weight
        before = [point for point in self.weight if point[0] <= step]
        after = [point for point in self.weight if point[0] > step]
        if not before or not after:
            return (before[-1] if before else after[0])[1]
        (start, low), (end, high) = before[-1], after[0]
        return low + (high - low) * (step - start) / (end - start)


class ImagesTable(Table):
    """The size at which the model sees images."""

    min_pixels: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """A smaller image is enlarged to this many pixels; None uses the limit of the model folder."""
    max_pixels: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """A larger image is reduced to this many pixels; None uses the limit of the model folder."""


class ModelTable(Table):
    """The policy."""

    path: str
    """A local Hugging Face folder, a hub id, or ``builtin:NAME`` for a model built from the run's seed."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Data type of the weights; ``auto`` is float32 on a CPU and bfloat16 on a GPU."""
    quantization: Literal["none", "nf4"] = "none"
    """Quantization of the base model of an adapter: none, or 4-bit NF4 (QLoRA, arXiv:2305.14314)."""
    device: Annotated[str, AfterValidator(_device)] = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    chat_format: str = "auto"
    """Chat format: ``auto`` detects it from the model's tokenizer; otherwise an id: ``plain``, ``template``, …."""
    chat_template: str | None = None
    """File with a Jinja chat template that replaces the one of the model folder, for the chat format ``template``."""
    chat_template_kwargs: dict[str, Any] = {}
    """Arguments of the chat template, such as ``enable_thinking = false``. The format ``qwen3`` reads this one."""
    hide_tools: bool = False
    """Show no tools to the model, with the chat format ``template``. Without it, a run with tools that the template
    cannot show is rejected."""
    tool_parser: str = "auto"
    """Parser of tool calls: ``auto`` uses that of the chat format; otherwise an id, such as ``hermes`` or ``react``."""
    images: ImagesTable = ImagesTable()
    """The size at which the model sees images."""
    vision_tower: Literal["trained", "frozen"] = "trained"
    """Whether the image encoder of a vision-language model is trained. An adapter (``[lora]``) leaves it frozen."""
    builder: dict[str, Any] = {}
    """Options of a ``builtin:`` model, such as ``layers = 4``."""


class RolloutTable(Table):
    """Rollouts. Options of the engine are in a table named after its id, such as ``rollout.torch.slots``."""

    model_config = ConfigDict(extra="allow")

    engine: str = "torch"
    """Inference engine: an id from ``rlcore plugins list --check``, such as ``torch``, ``vllm`` or ``openai``."""
    group_size: Count = 8
    """Trajectories per task, G."""
    max_new_tokens: Annotated[int, Field(ge=1, le=LARGEST)] = 256
    """Maximum number of tokens per generation (one turn)."""
    max_context_tokens: Annotated[int, Field(ge=2, le=LARGEST)] | None = None
    """Maximum number of tokens that the model sees at once (a segment); None uses the limit of the model."""
    max_prompt_tokens: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Maximum number of tokens of a task's own messages, with images. Longer tasks are removed and counted before the
    run; None keeps all. It does not apply to an engine that takes messages."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling temperature during training."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling during training. Below 1, the sampled distribution differs from the trained one."""
    top_k: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Number of most likely tokens to sample from during training; 0 keeps all."""
    stop: list[Annotated[str, Field(min_length=1)]] = []
    """Stop strings, in addition to the tokens of the chat format. The matched string stays in the output."""
    concurrency: Count = 256
    """Maximum number of concurrent trajectories."""
    environment_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Timeout of one ``reset``, ``step`` or ``close``, in seconds. It does not apply to control environments in the
    run's own process (``sampler.vector=sync``), which cannot be interrupted."""
    engine_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Timeout of one generation, including time in the queue, in seconds."""
    reward_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Timeout of one reward, in seconds."""
    trajectory_timeout_s: Annotated[float, Field(gt=0)] = 1800.0
    """Timeout of a trajectory, in seconds."""


class SandboxTable(ComponentTable):
    """The sandbox for code that a model writes. It is started only if an environment, tool or reward runs code.

    The backend's own keys, such as ``base_url``, are in the same table. Limits are per session unless stated.
    """

    id: str = AUTO
    """Backend: ``auto`` uses the strongest one that is available on this machine; otherwise an id from ``rlcore
    doctor``, which is used or refused, but never replaced."""
    cell_s: Annotated[float, Field(gt=0)] = _LIMITS.cell_s
    """Wall time of a cell in seconds. The code is then killed, and the session restarts with its initial images."""
    cpu_s: Annotated[float, Field(gt=0)] = _LIMITS.cpu_s
    """CPU time of a cell in seconds: of each of its processes, summed over threads. ``cell_s`` limits all together."""
    memory_mb: Annotated[int, Field(ge=1, le=LARGEST)] = _LIMITS.memory_mb
    """Memory in MiB."""
    output_characters: Annotated[int, Field(ge=100, le=LARGEST)] = _LIMITS.output_characters
    """Characters of each text that a cell returns: stdout, stderr, value and error. Of a longer text, the beginning and
    the end are kept."""
    images: Annotated[int, Field(ge=0, le=MOST)] = _LIMITS.images
    """Images that a cell returns. Others are counted."""
    image_pixels: Annotated[int, Field(ge=1, le=LARGEST)] = _LIMITS.image_pixels
    """Pixels of a returned image; a larger one is reduced."""
    processes: Count = _LIMITS.processes
    """Processes and threads."""
    files: Annotated[int, Field(ge=8, le=MOST)] = _LIMITS.files
    """Open files of a process."""
    file_mb: Annotated[int, Field(ge=1, le=LARGEST)] = _LIMITS.file_mb
    """Size of a file, and of all files together, in MiB."""

    @property
    def limits(self) -> SandboxLimits:
        """The limits, without the backend."""
        return SandboxLimits(**{one.name: getattr(self, one.name) for one in fields(SandboxLimits)})


class ScheduleTable(Table):
    """What runs at the same time."""

    ahead: Annotated[int, Field(ge=0, le=MOST)] = 0
    """Steps by which sampling is ahead of training. 0 samples with the newest weights. Otherwise groups are sampled
    during updates and transfers of weights, and a step trains on those that have ended, oldest first."""
    max_age: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    """Steps after which a sampled group is too old to train on, and is dropped. None is 2 more than ``ahead``."""


class EvaluationTable(Table):
    """Evaluation on held-out tasks. It does not affect the random state of training."""

    every: Annotated[int, Field(ge=0, le=LARGEST)] = 10
    """Steps between evaluations, which also run before the first and after the last step. 0 disables evaluation."""
    tasks: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Number of held-out tasks to use, from the start, of each environment; None uses all."""
    samples: Count = 1
    """Trajectories per task."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Sampling temperature; 0 is greedy decoding."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Number of most likely tokens to sample from; 0 keeps all."""
    success: float = 1.0
    """Minimum reward of a trajectory that counts as solved (accuracy)."""


class MetricChoice(Table):
    """A metric by its name."""

    metric: str | None = None
    """Name of a metric, such as ``evaluation/reward``; None uses that of the trainer."""
    direction: Literal["max", "min"] | None = None
    """Whether higher or lower values are better; None follows from the metric."""


class CheckpointTable(Table):
    """Checkpoints. The best one (by evaluation) and the last one are always kept."""

    every: Annotated[int, Field(ge=0, le=LARGEST)] = 20
    """Steps between checkpoints; 0 writes only the last one."""
    keep: Annotated[int, Field(ge=1, le=LARGEST)] = 2
    """Number of recent checkpoints to keep, in addition to the best one."""
    best: MetricChoice = MetricChoice()
    """The metric of an evaluation that decides the best checkpoint; the latest one wins ties. By default, the accuracy
    on held-out tasks and then their reward, or in supervised training the loss on held-out conversations."""


class TrackersTable(Table):
    """Metric trackers. Options of a tracker are in a table named after its id."""

    model_config = ConfigDict(extra="allow")

    use: list[str] = ["console", "jsonl"]
    """Ids of trackers, such as ``console``, ``jsonl``, ``tensorboard``, ``wandb``, ``trackio``, ``webhook``."""


Environments = Annotated[
    Annotated[HostedTable, Tag("table")] | Annotated[list[EnvironmentTable], Tag("list")],
    Discriminator(lambda value: "list" if isinstance(value, list) else "table"),
]


class RunConfig(Table):
    """The configuration of a run."""

    FIXED = frozenset(
        {"name", "runs", "layout", "seed", "model.path", "model.builder", "model.dtype", "trainer.id"},
    )
    RENAMED = {"executor": "sampler"}

    summary: str = ""
    """One-line description."""
    requires: list[str] = []
    """Distributions that the recipe needs in addition to its own plugin, in pip syntax."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Random seed for data order, model initialisation and sampling."""
    runs: str = "runs"
    """Folder in which run directories are created."""
    name: str | None = None
    """Name of the run directory; None generates one from date, recipe and a short id. See also ``layout``."""
    model: ModelTable
    """The policy."""
    layout: Literal["plain", "stamped"] = "plain"
    """``stamped`` names the run directory ``<date>_<time>_<name>`` and adds ``backup``, ``ckpt`` and ``result``."""
    environment: Environments
    """Environment, usually set by ``-p PLUGIN``, or a list of them. Optional for trainers without rollouts; the id is
    then empty."""
    reward: list[RewardTable]
    """Rewards: at least one, unless the trainer uses no rollouts, or the advantage no rewards."""
    data: dict[str, Any] = {}
    """Dataset; ``id`` defaults to the id of the environment."""
    rollout: RolloutTable = RolloutTable()
    """Rollouts."""
    sandbox: SandboxTable = SandboxTable()
    """The sandbox for code that a model writes."""
    algorithm: dict[str, Any] = {}
    """Advantage, loss and KL penalty; read by the trainer."""
    trainer: ComponentTable = ComponentTable(id="policy-gradient")
    """Trainer."""
    strategy: ComponentTable = ComponentTable(id="single")
    """How updates are distributed over processes and devices."""
    sampler: ComponentTable = ComponentTable(id="local")
    """Where rollouts are executed."""
    schedule: ScheduleTable = ScheduleTable()
    """What runs at the same time."""
    evaluation: EvaluationTable = EvaluationTable()
    """Evaluation on held-out tasks."""
    checkpoint: CheckpointTable = CheckpointTable()
    """Checkpoints."""
    trackers: TrackersTable = TrackersTable()
    """Metric trackers."""
    observers: list[str] = []
    """Observers: plugins whose observe hooks are called, or classes, such as ``file.py:Class``."""
    diagnosis: list[str] = []
    """Rules of the diagnosis besides those of the plugins: functions, such as ``file.py:too_polite``."""

    @property
    def has_environment(self) -> bool:
        """Whether the run has an environment, or several."""
        return isinstance(self.environment, list) or bool(self.environment.id)

    @property
    def mixture(self) -> list[EnvironmentTable]:
        """The environments of a run with several; empty for a run with one, or without."""
        return self.environment if isinstance(self.environment, list) else []
