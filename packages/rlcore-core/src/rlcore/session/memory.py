"""An estimate of the memory and disk space of a run, beside what the machine has, and of its trajectories in tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.abilities import MultiTurnConfig, ProcessesConfig, TasksConfig, ToolsConfig
from rlcore.errors import DataError, UserError
from rlcore.images import ImageProcessor, image_size
from rlcore.models.shape import ModelShape, shape_of_folder
from rlcore.plugins.loading import load_attribute
from rlcore.plugins.registry import asked
from rlcore.runs.machine import free_bytes, gpu_bytes, memory_bytes, peak_bytes, size_text, used_bytes
from rlcore.session.processes import world_size
from rlcore.specs import GAPS, MemoryNeeds, ModelOnDevice

if TYPE_CHECKING:
    from rlcore.config.resolved import Resolved
    from rlcore.session.session import RunSession
    from rlcore.types import Task

PROGRAM_BYTES = 750 * 2**20
"""Memory of a process that has imported torch and transformers."""
WORKING_BYTES = 96 * 2**20
"""What their libraries take in addition: with AVX2, 40 MiB at the first forward and backward pass, and later 50 MiB for
kernels (`rlcore_models.products`)."""
CUDA_BYTES = 600 * 2**20
"""Memory of a GPU that CUDA takes for itself."""
TOLERANCE = 0.2
"""Share by which an estimate may be too high."""
ROOMY = 0.5
"""Freed memory is kept for reuse if the run then needs at most this share of the machine's memory."""
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """The expected peak of a run on one machine."""

    device: str
    """``cpu`` or ``cuda``."""
    parts: Mapping[str, int]
    """Bytes by purpose, of all processes on a CPU, or of each on its GPU."""
    available: int | None
    """Bytes that the machine has; None if it is unknown."""
    main: int
    """Bytes of the main process, and of those that only it starts; or those of its GPU."""
    keep_freed: bool = False
    """Whether freed memory is kept for reuse, up to `main`; see `rlcore.models.freed_memory`."""
    checkpoint: int = 0
    """Bytes of one checkpoint."""
    checkpoints: int = 0
    """The number of checkpoints that are kept at the same time."""
    free_disk: int = 0
    exact: bool = True
    """False if the sizes of the model were taken from its name."""

    @property
    def total(self) -> int:
        """Bytes in memory."""
        return sum(self.parts.values())

    @property
    def kept(self) -> int:
        """Bytes of the main process up to which freed memory is kept."""
        return self.main if self.keep_freed else 0

    @property
    def fits(self) -> bool:
        """Whether the machine may have enough memory, given that the estimate may be too high."""
        return self.available is None or self.total <= self.available * (1 + TOLERANCE)

    def require_fit(self, resolved: Resolved) -> None:
        """Reject a run that the system would end, before its model is loaded.

        Raises:
            UserError: the run does not fit into the memory.
        """
        if self.fits:
            return
        raise UserError(
            "the run needs more memory than this machine has",
            found=f"about {size_text(self.total)}, and there are {size_text(self.available or 0)}; {self._parts()}",
            where=resolved.origin(("trainer", "max_tokens_per_batch")) if self._large_batch else "",
            fix="a smaller trainer.max_tokens_per_batch, or trainer.gradient_checkpointing=true"
            if self._large_batch
            else "an adapter (lora.rank=16), a smaller model, or a machine with more memory",
        )

    @property
    def _large_batch(self) -> bool:
        """Whether a smaller batch would fit."""
        rest = self.total - self.parts.get("activations", 0)
        return self.available is not None and rest < self.available

    def _parts(self) -> str:
        return ", ".join(f"{name} {size_text(count)}" for name, count in self.parts.items() if count >= 2**20)

    def lines(self) -> list[str]:
        """The estimate for the log."""
        has = f" of {size_text(self.available)}" if self.available else ""
        source = "" if self.exact else ", from the size in the model's name"
        lines = [f"memory    about {size_text(self.total)}{has} ({self.device}{source}): {self._parts()}"]
        if self.available is not None and self.total > self.available and self.fits:
            lines.append("note      this may be more memory than the machine has, and the system may end the run")
        if self.checkpoint:
            disk = f"{self.checkpoints} checkpoints of {size_text(self.checkpoint)}"
            lines.append(f"disk      about {disk}; {size_text(self.free_disk)} are free")
        return lines


def estimate_memory(run: RunSession, model: Path | ModelShape) -> MemoryEstimate | None:
    """Estimate what a run needs; None if its trainer does not say.

    Call it after the trainer's module was imported: only then is it known whether there is a GPU.

    Args:
        run: a checked run
        model: the folder of the model, or its sizes if only they are known

    Raises:
        PluginError: the function of the trainer or of the engine failed.
    """
    trainer = run.trainer_spec
    if trainer.memory is None:
        return None
    try:
        shape = shape_of_folder(model) if isinstance(model, Path) else model
    except UserError:
        return None  # loading the model reports it
    gpu = gpu_bytes(run.config.model.device)
    dtype = run.config.model.dtype
    placed = ModelOnDevice(
        shape=shape,
        element_bytes=DTYPE_BYTES.get(dtype, 2 if gpu else 4),
        gpu_bytes=gpu[0] if gpu else None,
    )
    needs = _needs(run, trainer.memory, "trainer", trainer.id, placed)
    processes, once = 1 if gpu else processes_of(run), dict[str, int]()
    if trainer.needs_environment and run.engine_spec.memory is not None:
        more = _needs(run, run.engine_spec.memory, "engine", run.engine_spec.id, placed)
        phases = {name: {**needs.phases.get(name, {}), **phase} for name, phase in more.phases.items()}
        once = {name: count * (processes - 1) for name, count in more.parts.items() if run.shares_sampler}
        needs = replace(needs, parts={**needs.parts, **more.parts}, phases={**needs.phases, **phases})
    program = CUDA_BYTES if gpu else max(used_bytes(), PROGRAM_BYTES) + WORKING_BYTES
    available = gpu[0] if gpu else memory_bytes()
    counts = {"program": program, **needs.parts, **_largest(needs.phases.values())}
    keep_freed = (
        gpu is None
        and available is not None
        and sum(counts.values()) * processes - sum(once.values()) <= ROOMY * available
    )
    if not keep_freed:
        compact = [{name: count for name, count in phase.items() if name != GAPS} for phase in needs.phases.values()]
        counts = {"program": program, **needs.parts, **_largest(compact)}
    keep = run.config.checkpoint.keep + 2  # the best one, and the one that is being written
    return MemoryEstimate(
        device="cuda" if gpu else "cpu",
        parts={name: count * processes - once.get(name, 0) for name, count in counts.items()},
        available=available,
        main=sum(counts.values()),
        keep_freed=keep_freed,
        checkpoint=needs.checkpoint,
        checkpoints=keep,
        free_disk=free_bytes(Path(run.config.runs).expanduser()),
        exact=isinstance(model, Path) or shape.layers > 0,
    )


def _largest(phases: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    return max(phases, key=lambda phase: sum(phase.values()), default={})


def peak_line(run: RunSession, estimate: MemoryEstimate | None) -> str:
    """The most memory that this process used, and the estimate, for the log."""
    gpu = gpu_bytes(run.config.model.device)
    peak = gpu[1] + CUDA_BYTES if gpu else peak_bytes()
    expected = f", estimated {size_text(estimate.main)}" if estimate is not None else ""
    return f"memory    peak {size_text(peak)}{expected}"


def _needs(run: RunSession, target: str, kind: str, id: str, model: ModelOnDevice) -> MemoryNeeds:
    what = f"the memory of {run.registry.named(kind, id)}"
    needs: MemoryNeeds = asked(what, load_attribute(target, what=what), run, model)
    return needs


def processes_of(run: RunSession) -> int:
    """The number of processes of a run, also of one that has not started them."""
    options = run.options("strategy")
    asked_for = options.processes if isinstance(options, ProcessesConfig) else None
    return max(world_size(), asked_for or 1)


SAMPLED_TASKS = 64
"""The number of tasks whose prompts are read."""
EVALUATED_TASKS = 64
"""Tasks of an evaluation whose number is not set."""
ANSWER_TOKENS = 64
"""A typical observation between two turns."""
FORMAT_TOKENS, INSTRUCTION_TOKENS, TOOL_TOKENS = 24, 128, 80
"""The text that a chat format adds to a prompt: always, with any tools, and for each tool."""
CHARACTERS_PER_TOKEN = 3.5


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """The prompts of some tasks, in tokens."""

    longest: int
    mean: int
    visual: int
    """The most visual tokens of one prompt; they are not among the others."""

    def of(self, tasks: int) -> int:
        """The tokens of the prompts of this many tasks, of which one is the longest."""
        return self.longest + (tasks - 1) * self.mean + tasks * self.visual


def tasks_together(run: RunSession) -> int:
    """The largest number of tasks that are sampled at the same time."""
    options, evaluation = run.resolved.options.get("trainer"), run.config.evaluation
    evaluated = (evaluation.tasks or EVALUATED_TASKS) if evaluation.every or options is None else 0
    return max(options.tasks_per_step if isinstance(options, TasksConfig) else 0, evaluated, 1)


def own_tokens(run: RunSession) -> int:
    """The most tokens of a trajectory after its prompt."""
    turns = max((each.max_turns for each in _environments(run) if isinstance(each, MultiTurnConfig)), default=1)
    return turns * run.config.rollout.max_new_tokens + (turns - 1) * ANSWER_TOKENS


def prompt_lengths(run: RunSession) -> PromptLengths:
    """The prompts of some tasks, from their characters, tools and images; the tools alone without data."""
    try:
        tasks = list(islice(run.dataset.tasks("train") or run.dataset.tasks("evaluation"), SAMPLED_TASKS))
    except UserError:
        tasks = []
    tools = max((len(each.tools) for each in _environments(run) if isinstance(each, ToolsConfig)), default=0)
    added = FORMAT_TOKENS + (INSTRUCTION_TOKENS + tools * TOOL_TOKENS if tools else 0)
    texts = [sum(len(message.text) for message in task.messages) for task in tasks] or [0]
    return PromptLengths(
        longest=added + int(max(texts) / CHARACTERS_PER_TOKEN),
        mean=added + int(sum(texts) / len(texts) / CHARACTERS_PER_TOKEN),
        visual=_visual_tokens(run, tasks),
    )


def _environments(run: RunSession) -> list[object]:
    return [environment.options for environment in run.resolved.environments]


def _visual_tokens(run: RunSession, tasks: Sequence[Task]) -> int:
    """The most visual tokens of one task. Images that cannot be read are reported where they are used."""
    if not any(task.images for task in tasks):
        return 0
    folder = run.model_here()
    processor = (None if folder is None else run.image_processor(folder)) or ImageProcessor()
    most = 0
    for task in tasks:
        tokens = 0
        for data in task.images:
            try:
                rows, columns = processor.tokens(*image_size(data))
                tokens += rows * columns
            except DataError:
                continue
        most = max(most, tokens)
    return most
