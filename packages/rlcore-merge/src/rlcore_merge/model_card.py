"""The model card of an uploaded folder: what was trained, how, and what its evaluation measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlcore.config.layers import Layer
from rlcore.runs.checkpoints import run_of
from rlcore.runs.directory import asked_of, config_layer
from rlcore.runs.metrics import read_metrics

FILE = "README.md"
HEAD = """---
library_name: transformers
tags:
- rlcore
- reinforcement-learning
---
"""
SHOWN = {
    "model.path": "Base model",
    "environment.id": "Environment",
    "reward": "Rewards",
    "trainer.id": "Trainer",
    "algorithm.advantage.id": "Advantage",
    "algorithm.loss.id": "Loss",
    "rollout.group_size": "Trajectories of a task",
    "trainer.learning_rate": "Learning rate",
    "lora.rank": "Rank of the adapter",
    "seed": "Seed",
}
"""The keys of the configuration that a card shows. Others may have paths and addresses of a machine."""


def write_card(folder: Path, checkpoint: Path, repository: str) -> None:
    """Write the card of a merged checkpoint into its folder, unless it has one."""
    if (folder / FILE).exists():
        return
    found = run_of(checkpoint)
    about = _about(*found) if found else ["Converted by `rlcore merge`."]
    text = "\n".join([f"# {repository.rpartition('/')[2]}", "", *about])
    (folder / FILE).write_text(f"{HEAD}{text}\n", encoding="utf-8")


def _about(run: Path, checkpoint: Path | None) -> Iterator[str]:
    layer, recipe = config_layer(run), asked_of(run).recipe
    step = int(checkpoint.name) if checkpoint is not None and checkpoint.name.isdigit() else None
    yield f"Trained with rlcore{f', recipe {_plain(recipe)}' if recipe else ''}."
    yield from ("", "| Setting | Value |", "|---|---|")
    yield from (f"| {label} | {_plain(value)} |" for label, value in _settings(layer))
    if step is not None:
        yield f"| Step | {step} |"
    measured = [row for row in read_metrics(run / "metrics.jsonl") if row["step"] == step]
    values = {key: value for row in measured for key, value in row.items() if key.startswith("evaluation/")}
    numbers = {key: value for key, value in values.items() if isinstance(value, int | float)}
    if numbers:
        yield from ("", "## Evaluation", "", "On the held-out tasks of the run:", "", "| Metric | Value |", "|---|---|")
        yield from (f"| {_plain(key.partition('/')[2])} | {value:.4g} |" for key, value in sorted(numbers.items()))


def _settings(layer: Layer) -> Iterator[tuple[str, Any]]:
    for key, label in SHOWN.items():
        value = _value(layer.tree, key)
        if key == "model.path" and value is not None and Path(str(value)).expanduser().exists():
            value = Path(str(value)).name  # the path belongs to the machine
        if key == "reward" and isinstance(value, list):
            value = ", ".join(str(one.get("id")) for one in value if isinstance(one, dict))
        if value is not None:
            yield label, value


def _value(tree: Mapping[str, Any], key: str) -> Any:
    found: Any = tree
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _plain(value: object) -> str:
    """A value as code in a cell of a table, which it cannot leave."""
    return f"`{' '.join(str(value).replace('`', '').replace('|', '').split())[:200]}`"
