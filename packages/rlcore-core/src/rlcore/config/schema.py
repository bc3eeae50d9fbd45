"""The tables of a run's configuration that rlcore itself reads.

Tables that belong to a component (``environment``, each ``reward``, ``data``, ``trainer``, ``algorithm``, ``strategy``,
``executor``, ``rollout.<engine>``) are validated by the component's own model once its spec is found.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Table(BaseModel):
    """A table: unknown keys are errors, values do not change, numbers are finite, docstrings document fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class ComponentTable(BaseModel):
    """A table that names a component by ``id`` and carries the component's own keys."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    id: str
    """Which component: an id of ``rlcore plugins list``, ``module:Class`` or ``file.py:Class``."""

    @property
    def own(self) -> dict[str, Any]:
        """The component's own keys."""
        return dict(self.model_extra or {})


class RewardTable(ComponentTable):
    """One reward. The run's reward of a trajectory is the weighted sum."""

    weight: float = 1.0
    """Weight in the sum; 0 makes it a metric."""


class ModelTable(Table):
    """The policy."""

    path: str
    """A local Hugging Face folder, a hub id, or ``builtin:NAME`` for a model built on the spot from the run's seed."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the weights; ``auto`` is float32 on a CPU and bfloat16 on a GPU."""
    quantization: Literal["none", "nf4"] = "none"
    """How the base of an adapter is held in memory: whole, or in 4 bits a weight (QLoRA, arXiv:2305.14314)."""
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    chat_format: str = "auto"
    """How messages become tokens: ``auto`` asks the folder's tokenizer; or ``qwen2.5``, ``qwen3``, ``plain``."""
    tool_parser: str = "auto"
    """How tool calls are read: ``auto`` is the chat format's own; or an id such as ``hermes`` or ``react``."""
    builder: dict[str, Any] = {}
    """Options of a ``builtin:`` model, such as ``layers = 4``."""


class RolloutTable(BaseModel):
    """How the policy acts. Options of the engine stand in a table of its id, such as ``rollout.torch.slots``."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    engine: str = "torch"
    """What samples: an id of ``rlcore plugins list --check``, such as ``torch``, ``vllm`` or ``openai``."""
    group_size: Annotated[int, Field(ge=1)] = 8
    """Trajectories per task, G."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 256
    """Tokens of one generation (one turn)."""
    max_context_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens of a whole trajectory; None is the model's own limit."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling temperature in training."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus in training; below 1 the sampled distribution is no longer the trained one."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Most likely tokens kept in training; 0 keeps all."""
    stop: list[Annotated[str, Field(min_length=1)]] = []
    """Texts that end a generation, besides the chat format's own tokens; each is kept."""
    concurrency: Annotated[int, Field(ge=1)] = 256
    """Trajectories alive at a time."""
    environment_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Deadline of one ``reset``, ``step`` or ``close``, in seconds."""
    engine_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Deadline of one generation, waiting included, in seconds."""
    reward_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Deadline of one reward, in seconds."""
    trajectory_timeout_s: Annotated[float, Field(gt=0)] = 1800.0
    """Deadline of a whole trajectory, in seconds."""

    @property
    def engine_tables(self) -> dict[str, Any]:
        """The engines' own tables by engine id."""
        return dict(self.model_extra or {})


class EvaluationTable(Table):
    """When and how held-out tasks are tried. Never touches the randomness of training."""

    every: Annotated[int, Field(ge=0)] = 10
    """Steps between evaluations; also before the first and after the last step. 0 switches evaluation off."""
    tasks: Annotated[int, Field(ge=1)] | None = None
    """How many held-out tasks, the first ones; None takes all."""
    samples: Annotated[int, Field(ge=1)] = 1
    """Trajectories per task."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 is greedy."""
    success: float = 1.0
    """A trajectory counts as solved (accuracy) when its reward is at least this."""


class CheckpointTable(Table):
    """What is kept to go on from. The best (by evaluation) and the last are always kept."""

    every: Annotated[int, Field(ge=0)] = 20
    """Steps between checkpoints; 0 writes only the last."""
    keep: Annotated[int, Field(ge=1)] = 2
    """How many of the newest stay, besides the best."""


class TrackersTable(BaseModel):
    """Who shows or stores the numbers. Options of a tracker stand in a table of its id."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    use: list[str] = ["console", "jsonl"]
    """Ids, such as ``console``, ``jsonl``, ``tensorboard``, ``wandb``, ``trackio``."""


class RunConfig(Table):
    """Everything that decides a run."""

    summary: str = ""
    """One line for people."""
    requires: list[str] = []
    """Distributions that the recipe needs besides its own plugin, in pip syntax."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """The one seed: data order, model building and sampling all derive from it."""
    runs: str = "runs"
    """Folder in which run directories are made."""
    name: str | None = None
    """Name of the run directory; None makes one from date, recipe and a short id. See also ``layout``."""
    model: ModelTable
    """The policy."""
    layout: Literal["plain", "stamped"] = "plain"
    """``stamped`` names the run directory ``<date>_<time>_<name>``, with ``backup``, ``ckpt`` and ``result`` in it."""
    environment: ComponentTable
    """Where it acts; ``-p PLUGIN`` brings it. A trainer that does not roll out can do without; the id is empty then."""
    reward: list[RewardTable]
    """What it is judged by: at least one, but for a trainer that does not roll out."""
    data: dict[str, Any] = {}
    """Which tasks; ``id`` names the dataset and defaults to the environment's id."""
    rollout: RolloutTable = RolloutTable()
    """How it acts."""
    algorithm: dict[str, Any] = {}
    """Advantage, loss and KL; read by the trainer."""
    trainer: ComponentTable = ComponentTable(id="policy-gradient")
    """How it improves."""
    strategy: ComponentTable = ComponentTable(id="single")
    """Over which processes and devices the update is spread."""
    executor: ComponentTable = ComponentTable(id="local")
    """Where rollouts run."""
    evaluation: EvaluationTable = EvaluationTable()
    """Held-out tasks."""
    checkpoint: CheckpointTable = CheckpointTable()
    """What is kept."""
    trackers: TrackersTable = TrackersTable()
    """Who is told."""
