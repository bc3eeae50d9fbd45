"""Write the reference pages: ``uv run python tests/repo/reference_pages.py``. A test checks that they are current."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import card_table
import troubleshooting_page
from pydantic import BaseModel
from rlcore.cli.config import field_rows
from rlcore.config.schema import RunConfig
from rlcore.diagnosis.rules import RULES
from rlcore.plugins.discovery import HOSTS
from rlcore.plugins.loading import load_attribute
from rlcore.plugins.registry import Registry
from rlcore.specs import Spec, TrainerSpec
from rlcore_compat.accelerate import ACCELERATE
from rlcore_compat.tables import Meaning
from rlcore_compat.trl import GRPO_FILE
from rlcore_compat.verl import SUPERVISED, VERL
from rlcore_trainer.metrics import METRICS

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
GUIDE = FOLDER.parent / "how-to" / "my-run-does-not-learn.md"
KINDS = {
    "trainer": "trainer",
    "strategy": "strategy",
    "sampler": "sampler",
    "engine": "rollout.{id}",
    "advantage": "algorithm.advantage",
    "loss": "algorithm.loss",
    "preference_loss": "preference.loss",
    "tracker": "trackers.{id}",
    "model": "model.builder",
    "dataset": "data",
}
"""Kinds of components with options, and the tables of their keys."""


def configuration() -> str:
    """The page of configuration keys."""
    lines = [
        "# Configuration keys",
        "",
        "This page lists the keys of a run with their types and defaults. `rlcore config schema -p PLUGIN` prints the "
        "same with the keys",
        "of a plugin, and `--json` a JSON schema for editors. [Concepts](../concepts.md#configuration) explains layers "
        "and overrides.",
        "",
        "## Keys of every run",
        "",
        *block(RunConfig, ""),
    ]
    for title, table, model in components():
        lines += ["", f"## {title}", "", *block(model, f"{table}.")]
    return "\n".join(lines) + "\n"


def components() -> Iterator[tuple[str, str, type[BaseModel]]]:
    """Title, table and model of each component of rlcore's own packages, and of the other tables of its trainers."""
    registry, shown = Registry(), set[str]()
    for kind, place in KINDS.items():
        for offer in sorted(
            (one for one in registry.offers(kind) if getattr(one.spec, "part", kind) == kind),
            key=lambda offer: offer.spec.id,
        ):
            spec = offer.spec
            if offer.plugin.distribution not in HOSTS:
                continue
            if (model := registry.config_model(kind, spec.id)) is not None:
                yield f"The {kind} `{spec.id}`", place.format(id=spec.id), model
            for table, target in spec.tables if isinstance(spec, TrainerSpec) else ():
                if table not in shown:
                    shown.add(table)
                    yield f"`[{table}]`", table, load(spec, target)


def load(spec: Spec, target: str) -> type[BaseModel]:
    model: type[BaseModel] = load_attribute(target, what=f"the keys of {spec.id}")
    return model


def block(model: type[BaseModel], prefix: str) -> list[str]:
    return ["```text", *field_rows(model, prefix), "```"]


def metrics() -> str:
    """The page of metrics."""
    better = {"max": "higher", "min": "lower", None: ""}
    lines = [
        "# Metrics",
        "",
        "Trainers log these metrics to `metrics.jsonl` and to the trackers. A part in capitals stands for any name. "
        "`checkpoint.best.metric`",
        "and `trainer.early_stop.metric` take a name; the last column is the direction that they use. *Healthy* says",
        "what a metric is in a run that learns, up to the values that "
        "[the diagnosis](../how-to/my-run-does-not-learn.md)",
        "reports. Without an entry, it depends on the task.",
        "",
        "| Metric | Meaning | Healthy | Better |",
        "|---|---|---|---|",
        *(f"| `{one.name}` | {one.meaning} | {one.healthy} | {better[one.better]} |" for one in METRICS),
    ]
    return "\n".join(lines) + "\n"


def trl() -> str:
    """The page of the keys of TRL and accelerate."""
    lines = [
        "# Keys of TRL and accelerate",
        "",
        "This page lists how `rlcore run` translates the files of `trl grpo --config` and `accelerate config`. "
        "[Migrating from TRL](../how-to/coming-from-trl.md)",
        "explains the differences.",
        "",
        "## Keys of TRL",
        "",
        *translations("TRL", GRPO_FILE.meanings),
        "",
        "## Keys of accelerate",
        "",
        *translations("accelerate", ACCELERATE.meanings),
    ]
    return "\n".join(lines) + "\n"


def verl() -> str:
    """The page of the keys of verl."""
    lines = [
        "# Keys of verl",
        "",
        "This page lists how `rlcore run` translates the overrides of verl. "
        "[Migrating from verl](../how-to/coming-from-verl.md) explains the differences.",
        "",
        *translations("verl", VERL.meanings),
        "",
        "## The supervised trainer",
        "",
        "These keys have another meaning, or exist only, if one is given that reinforcement learning does not have, or "
        "with `trainer.id=sft`.",
        "",
        *translations("verl", {key: one for key, one in SUPERVISED.meanings.items() if VERL.meanings.get(key) != one}),
        "",
        "A key that ends with `*` stands for all other keys of its table. Any other key is reported as unknown, with a "
        "suggestion if it is a typing mistake.",
        "`+key=value` and `++key=value` are the same as `key=value`.",
    ]
    return "\n".join(lines) + "\n"


def translations(system: str, meanings: Mapping[str, Meaning]) -> Iterator[str]:
    yield from (f"| {system} | rlcore | |", "|---|---|---|")
    for key, meaning in meanings.items():
        also = [f"`{name} = {json.dumps(value)}`" for name, value in meaning.also.items()]
        ours = ", ".join([f"`{meaning.ours}`", *also]) if meaning.ours else "–"
        yield f"| `{key}` | {ours} | {f'refused: {meaning.refuse}' if meaning.never else meaning.why} |"


def guide() -> str:
    """The guide to a run that does not learn. What precedes the rules is written by hand."""
    head, heading, _ = GUIDE.read_text(encoding="utf-8").partition("\n## The rules\n")
    lines = ["", "| Rule | Symptom | Metrics | Key to change first |", "|---|---|---|---|"]
    for spec in RULES:
        names, key = ", ".join(f"`{name}`" for name in spec.metrics), f"`{spec.key}`" if spec.key else ""
        lines.append(f"| [{spec.id}](#{spec.id}) | {spec.summary} | {names} | {key} |")
    for spec in RULES:
        condition, key = inspect.getdoc(load_attribute(spec.target)), f"`{spec.key}`: " if spec.key else ""
        symptom = f"{spec.summary[0].upper()}{spec.summary[1:]}"
        lines += ["", f"### {spec.id}", "", f"{symptom}. {condition}", "", f"{key}{spec.fix}."]
    return f"{head}{heading}" + "\n".join(lines) + "\n"


PAGES = {
    "cards.md": card_table.page,
    "configuration.md": configuration,
    "metrics.md": metrics,
    "trl.md": trl,
    "troubleshooting.md": troubleshooting_page.page,
    "verl.md": verl,
    "../how-to/my-run-does-not-learn.md": guide,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
