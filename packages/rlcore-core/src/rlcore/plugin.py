"""What rlcore-core offers, through the same hooks as any plugin."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import CheckSpec, DatasetSpec, TrackerSpec


@hookimpl
def rlcore_trackers() -> Iterable[TrackerSpec]:
    """Where numbers go."""
    yield TrackerSpec(
        id="console",
        target="rlcore.trackers.console:ConsoleTracker",
        summary="One line a step and a sparkline.",
    )
    yield TrackerSpec(
        id="jsonl", target="rlcore.trackers.jsonl:JsonlTracker", summary="metrics.jsonl in the run directory."
    )
    yield TrackerSpec(
        id="tensorboard",
        target="rlcore.trackers.tensorboard:TensorboardTracker",
        summary="Event files for TensorBoard.",
        needs=("rlcore-core[tensorboard]",),
    )
    yield TrackerSpec(
        id="wandb",
        target="rlcore.trackers.wandb:WandbTracker",
        config="rlcore.trackers.options:WandbOptions",
        summary="Weights & Biases.",
        needs=("rlcore-core[wandb]",),
    )
    yield TrackerSpec(
        id="trackio",
        target="rlcore.trackers.trackio:TrackioTracker",
        config="rlcore.trackers.options:TrackioOptions",
        summary="trackio, a local dashboard.",
        needs=("rlcore-core[trackio]",),
    )


@hookimpl
def rlcore_datasets() -> Iterable[DatasetSpec]:
    """Conversations from files."""
    yield DatasetSpec(
        id="chat",
        target="rlcore.chat_data:ChatData",
        config="rlcore.chat_data:ChatDataConfig",
        summary="Conversations to imitate, from JSON or JSONL files.",
    )


@hookimpl
def rlcore_checks() -> Iterable[CheckSpec]:
    """What ``rlcore doctor`` looks at."""
    yield CheckSpec(id="python", target="rlcore.doctor:python", summary="Version of Python.")
    yield CheckSpec(id="libraries", target="rlcore.doctor:libraries", summary="torch, transformers, rlcore.")
    yield CheckSpec(id="cpu", target="rlcore.doctor:cpu", summary="Cores and threads.")
    yield CheckSpec(id="gpu", target="rlcore.doctor:gpu", summary="Accelerators that torch can use.")
    yield CheckSpec(id="memory", target="rlcore.doctor:memory", summary="Memory of the machine.")
    yield CheckSpec(id="disk", target="rlcore.doctor:disk", summary="Space and permission where runs are written.")
    yield CheckSpec(id="plugins", target="rlcore.doctor:plugins", summary="States of the installed plugins.")
