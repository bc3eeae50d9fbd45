"""The example scripts of verl: every key is translated, ignored with a reason, or refused with a reason.

``verl_scripts.json`` lists the overrides of the scripts that start ``main_ppo`` or, in ``2026-01-sft``, one of the
supervised trainers, by revision of verl: the scripts, and
by key and value the indices of the scripts that set it. The scripts of 2026-01 with Megatron are left out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from commands_here import pretend_packages
from rlcore.cli.run import run
from rlcore.config.adapters import translate
from rlcore.config.messages import Problem, ProblemsError
from rlcore.plugins.registry import Registry
from rlcore_compat.verl import SUPERVISED, VERL
from rlcore_compat.vocabulary import entry_of

FILE = Path(__file__).with_name("verl_scripts.json")
REVISIONS = {"2026-01": 91, "2026-08": 89, "gui-rise": 2, "2026-01-sft": 10}
"""Number of scripts by month of the revision; GUI-Rise is a fork."""
REASONS = {
    "Megatron": r"Megatron is not supported|adapters of Megatron",
    "VeOmni": r"VeOmni is not supported|fsdp_turbo is not supported",
    "several machines": r"a run uses one machine",
    "reward model": r"reward models are not supported",
    "distillation": r"distillation from a teacher is not supported",
    "profiles": r"profiles are not recorded",
    "device": r"the device npu is not supported",
    "routing replay": r"expert choices of the engine are not replayed",
    "several tokens": r"heads that predict several tokens are not trained",
    "service for code": r"a reward runs code in the sandbox of the run",
    "estimator, loss or tracker": r"there is no (advantage|loss|tracker) |has no counterpart",
    "PF-PPO": r"PF-PPO is not supported",
    "rollout correction": (
        r"weights are not normalised|trajectories are not rejected|ratios are relative to|must be one number"
    ),
    "sampler": r"samplers of verl are not called",
    "chat template": r"chat formats take no arguments",
    "model configuration": r"the configuration of the model folder is used",
    "slow trajectories": r"dropping slow trajectories favours short ones",
    "critic's warm-up": r"its learning rate is constant",
    "optimiser": r"AdamW has no other options|the schedule ends at zero",
    "one trajectory per group": r"compares the trajectories of a group",
}
"""What rlcore lacks, by the reason that it gives."""
NOT_OF_VERL = {
    "actor_rollout_ref.actor.pad_to_length",
    "actor_rollout_ref.actor.model_engine",
}
"""Unknown keys of scripts, which verl does not have either."""
OWN = ("model=acme/none", "data.train=train.json", "data.evaluation=test.json", "rollout.engine=torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One script."""

    revision: str
    name: str
    overrides: tuple[str, ...]

    @property
    def is_supervised(self) -> bool:
        return self.revision.endswith("sft")


def scripts(revision: str) -> list[Script]:
    """All scripts of a revision with their overrides, sorted by key."""
    data = json.loads(FILE.read_text(encoding="utf-8"))[revision]
    overrides: list[list[str]] = [[] for _ in data["scripts"]]
    for key, values in data["keys"].items():
        for value, indices in values.items():
            for index in ranges(indices):
                overrides[index].append(f"{key}={value}")
    named = zip(data["scripts"], overrides, strict=True)
    return [Script(revision=revision, name=name, overrides=tuple(texts)) for name, texts in named]


def ranges(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def adapted(script: Script) -> list[str]:
    """The script with a model, data and an engine of rlcore, and without an adapter of another model."""
    adapter = any("lora_adapter_path" in text for text in script.overrides)
    others = re.compile(r"hydra\.|\w+@|model\.path=")
    overrides = [text for text in script.overrides if not others.match(text)]
    own = [text.replace(".json", ".jsonl") for text in OWN] if script.is_supervised else OWN
    return [*overrides, *own, *(["lora.adapter=null"] if adapter else [])]


@pytest.mark.parametrize("revision", REVISIONS)
def test_no_key_of_a_script_is_unknown_or_dropped(revision: str) -> None:
    registry = Registry()
    found = scripts(revision)
    assert len(found) == REVISIONS[revision]
    for script in found:
        given = adapted(script)
        translated = translate(registry, files=(), overrides=given)
        problems = [problem for layer in translated.overrides for problem in layer.problems]
        unknown = {problem.path for problem in problems if problem.kind == "unknown key"}
        assert unknown <= NOT_OF_VERL, script.name
        assert {text.replace(".jsonl", ".json") for text in translated.own} <= {*OWN, "lora.adapter=null"}, script.name
        refused = {problem.path for problem in problems}
        shown = {line.partition(" sets nothing: ")[0].partition(" -> ")[0] for line in translated.lines}
        for text in set(given) - set(translated.own) - shown:
            key = text.partition("=")[0].lstrip("+")
            assert key in refused or is_never_supported(key, script), (script.name, text)


def is_never_supported(key: str, script: Script) -> bool:
    """Whether all values of the key are refused. The same reason is reported only once."""
    meanings = (SUPERVISED if script.is_supervised else VERL).meanings
    entry = entry_of(key, meanings)
    return entry is not None and meanings[entry].never


@pytest.mark.long
@pytest.mark.parametrize(
    ("revision", "most_refused"), [("2026-01", 35), ("2026-08", 63), ("gui-rise", 0), ("2026-01-sft", 1)]
)
def test_scripts_pass_a_dry_run_or_are_refused_for_what_is_missing(
    revision: str,
    most_refused: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare(tmp_path, monkeypatch)
    registry = Registry()
    refused: dict[str, list[str]] = {}
    for script in scripts(revision):
        problems = problems_of(script, registry)
        if problems:
            refused[script.name] = [reason_of(problem.reason) for problem in problems]
            assert "" not in refused[script.name], (script.name, *map(str, problems))
    total = REVISIONS[revision]
    counts = Counter(reasons[0] for reasons in refused.values())
    with capsys.disabled():
        print(f"\nverl {revision}: {total - len(refused)} of {total} scripts pass; refused: {dict(counts)}")
    assert len(refused) <= most_refused


def problems_of(script: Script, registry: Registry) -> list[Problem]:
    """The problems of the translation, or else those of a dry run."""
    translated = translate(registry, files=(), overrides=adapted(script))
    problems = [problem for layer in translated.overrides for problem in layer.problems]
    if not problems:
        plugin = [] if script.is_supervised else ["-p", "gsm8k-tools"]
        result = CliRunner().invoke(run, [*plugin, "--dry-run", *adapted(script)])
        assert result.exit_code == 0 or isinstance(result.exception, ProblemsError), (script.name, result.exception)
        problems = list(result.exception.problems) if isinstance(result.exception, ProblemsError) else []
    return [problem for problem in problems if problem.path not in NOT_OF_VERL]


def reason_of(text: str) -> str:
    return next((name for name, pattern in REASONS.items() if re.search(pattern, text)), "")


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data files, and metadata of packages: a dry run reads their versions and does not import them."""
    for name, count in (("train", 8192), ("test", 8)):
        rows: list[dict[str, Any]] = [
            {"question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(count)
        ]
        (folder / f"{name}.json").write_text(json.dumps(rows))
        for row in rows:  # as in verl's files for the supervised trainers
            turns = [("user", row.pop("question")), ("assistant", row.pop("answer"))]
            row["extra_info"] = {"question": turns[0][1], "answer": turns[1][1]}
            row["messages"] = [{"role": role, "content": text} for role, text in turns]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pretend_packages(monkeypatch, folder, "vllm", "wandb", "tensorboard")
