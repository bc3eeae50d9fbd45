"""The components of rlcore-core, registered with the same hooks as any plugin."""

from __future__ import annotations

from rlcore.diagnosis.rules import RULES
from rlcore.specs import CheckSpec, DatasetSpec, TrackerSpec

rlcore_specs = [
    TrackerSpec(
        id="console",
        target="rlcore.trackers.console:ConsoleTracker",
        summary="One line per step, with a sparkline.",
    ),
    TrackerSpec(id="jsonl", target="rlcore.trackers.jsonl:JsonlTracker", summary="metrics.jsonl in the run directory."),
    TrackerSpec(
        id="tensorboard",
        target="rlcore.trackers.tensorboard:TensorboardTracker",
        config="rlcore.trackers.options:TensorboardOptions",
        summary="Event files for TensorBoard.",
        needs=("rlcore-core[tensorboard]",),
    ),
    TrackerSpec(
        id="wandb",
        target="rlcore.trackers.wandb:WandbTracker",
        config="rlcore.trackers.options:WandbOptions",
        summary="Weights & Biases.",
        needs=("rlcore-core[wandb]",),
    ),
    TrackerSpec(
        id="trackio",
        target="rlcore.trackers.trackio:TrackioTracker",
        config="rlcore.trackers.options:TrackioOptions",
        summary="trackio, a local dashboard.",
        needs=("rlcore-core[trackio]",),
    ),
    TrackerSpec(
        id="webhook",
        target="rlcore.trackers.webhook:WebhookTracker",
        config="rlcore.trackers.options:WebhookOptions",
        summary="Alerts as JSON to a URL; no metrics.",
    ),
    DatasetSpec(
        id="chat",
        target="rlcore.data.chat:ChatData",
        config="rlcore.data.chat:ChatDataConfig",
        summary="Conversations for supervised training, from JSON or JSONL files.",
    ),
    DatasetSpec(
        id="preferences",
        target="rlcore.data.preferences:PreferenceData",
        config="rlcore.data.preferences:PreferenceDataConfig",
        summary="Prompts with a chosen and a rejected answer, from JSON, JSONL or parquet files.",
    ),
    DatasetSpec(
        id="hub",
        target="rlcore.data.hub:HubData",
        config="rlcore.data.hub:HubDataConfig",
        summary="A data set of the Hugging Face hub, or a folder of its files, with a mapping of columns.",
        needs=("rlcore-core[datasets]",),
    ),
    CheckSpec(id="python", target="rlcore.doctor:python", summary="Python version."),
    CheckSpec(id="libraries", target="rlcore.doctor:libraries", summary="torch, transformers, rlcore."),
    CheckSpec(id="cpu", target="rlcore.doctor:cpu", summary="CPU cores and threads."),
    CheckSpec(id="gpu", target="rlcore.doctor:gpu", summary="GPUs available to torch."),
    CheckSpec(id="memory", target="rlcore.doctor:memory", summary="System memory."),
    CheckSpec(id="disk", target="rlcore.doctor:disk", summary="Disk space and permissions for runs."),
    CheckSpec(id="plugins", target="rlcore.doctor:plugins", summary="State of the installed plugins."),
    *RULES,
]
