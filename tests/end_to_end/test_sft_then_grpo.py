"""The chain of ``examples/sft-then-grpo``: its files, and the accuracy of each stage."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from documents import blocks
from example_plugin import search_path
from finished_runs import commit, evaluations, succeeded
from preloaded import rlcore_command
from rl_plugin_gsm8k_tools.config import DataConfig, EnvironmentConfig
from rl_plugin_gsm8k_tools.dataset import Gsm8kData
from rl_plugin_gsm8k_tools.environment import Gsm8kTools
from rlcore.data.chat import ChatData, ChatDataConfig
from rlcore_models.builtin.config import TinyQwen2Config
from rlcore_models.builtin.tiny_qwen2 import build
from rlcore_rollout.chat.plain import PlainFormat

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "sft-then-grpo"
PLUGIN = REPOSITORY / "examples" / "visual-cot"
"""Contains the config adapter that reads the files."""
README = EXAMPLE / "README.md"
MEASURED = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end of what was measured -->)", re.DOTALL)
SEEDS = (0, 1)
SWITCH = "algorithm.loss=gspo"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Accuracy of a model on the held-out problems, and its training time."""

    greedy: float
    sampled: float
    seconds: float


def rlcore(folder: Path, *arguments: str) -> str:
    plugin = {"PYTHONPATH": os.pathsep.join(search_path(PLUGIN, folder / ".installed"))}
    environment = os.environ | plugin | {"OMP_NUM_THREADS": "1"}
    return succeeded(rlcore_command(arguments, folder, environment=environment, timeout_s=3600)).stdout


def prepared(folder: Path) -> Path:
    """A folder with the files of the example and the data from the commands in its README."""
    for name in ("sft.yaml", "grpo.yaml"):
        shutil.copy(EXAMPLE / name, folder)
    commands = [command for block in blocks(README) for command in block.commands]
    for command in (one for one in commands if one[:3] == ["rlcore", "data", "prepare"] and "source=generated" in one):
        rlcore(folder, *command[1:])
    return folder


def stage(folder: Path, name: str, *words: str) -> Stage:
    """Train, merge and evaluate with the commands in the README."""
    started = time.monotonic()
    rlcore(folder, "run", *words, f"name={name}")
    seconds = time.monotonic() - started
    rlcore(folder, "merge", f"runs/{name}" + ("" if name == "sft" else "/checkpoints/last"), "--out", f"merged-{name}")
    accuracy = [
        json.loads(rlcore(folder, "eval", "-p", "gsm8k-tools", "--json", f"model=merged-{name}", *more))["accuracy"]
        for more in ((), ("evaluation.temperature=1.0", "evaluation.samples=4"))
    ]
    return Stage(greedy=accuracy[0], sampled=accuracy[1], seconds=seconds)


def chain(folder: Path, *, supervised: tuple[str, ...] = (), reinforced: tuple[str, ...] = ()) -> dict[str, Stage]:
    """The three stages by name."""
    given = ("-p", "gsm8k-tools", "-c", "grpo.yaml", *reinforced)
    return {
        "sft": stage(folder, "sft", "-c", "sft.yaml", *supervised),
        "grpo": stage(folder, "grpo", *given),
        "gspo": stage(folder, "gspo", *given, SWITCH),
    }


def test_readme_shows_the_files() -> None:
    shown = {block.rest: block.text for block in blocks(README) if block.mode == "file"}
    assert shown == {name: (EXAMPLE / name).read_text(encoding="utf-8") for name in ("sft.yaml", "grpo.yaml")}


@pytest.mark.long
def test_sft_and_grpo_prompts_match(tmp_path: Path) -> None:
    prepared(tmp_path)
    chats = ChatData(ChatDataConfig(train=[str(tmp_path / "data/conversations-dev.jsonl")]))
    build(tmp_path / "model", list(chats.texts()), 0, TinyQwen2Config(layers=1, width=32))
    chat_format = PlainFormat(tmp_path / "model")
    schemas = tuple(tool.schema for tool in Gsm8kTools(EnvironmentConfig()).tools.values())
    imitated = chats.conversations("train")[0]
    task = Gsm8kData(DataConfig(train=[str(tmp_path / "data/problems.jsonl")])).tasks("train")[0]
    assert imitated.tools == schemas
    prompt = chat_format.prompt(imitated.messages[:1], schemas)
    ids, mask = chat_format.conversation(imitated.messages, imitated.tools)
    assert list(ids[: len(prompt)]) == list(prompt)
    assert not any(mask[: len(prompt)])
    assert mask[len(prompt)]
    assert task.messages[0].text in chat_format.decode(chat_format.prompt(task.messages, schemas))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_shortened_chain_learns_at_every_stage(tmp_path: Path) -> None:
    """Compare the accuracy at the start and the end of each run, and after its merge."""
    prepared(tmp_path)
    rlcore(tmp_path, "run", "-c", "sft.yaml", "name=sft", "trainer.epochs=2", "evaluation.every=0")
    rlcore(tmp_path, "merge", "runs/sft", "--out", "merged-sft")
    sampled = ("evaluation.temperature=1.0", "evaluation.samples=2")
    short = ("trainer.steps=8", "evaluation.every=8", "checkpoint.every=0", *sampled)
    kinds = {"grpo": (), "gspo": (SWITCH,), "adapter": ("lora.rank=32", "trainer.learning_rate=1e-3")}
    for name, words in kinds.items():
        rlcore(tmp_path, "run", "-p", "gsm8k-tools", "-c", "grpo.yaml", f"name={name}", *short, *words)
        first, *_, last = evaluations(tmp_path / "runs" / name).values()
        assert first < 0.5, name
        assert last > first + 0.15, name
        rlcore(tmp_path, "merge", f"runs/{name}/checkpoints/last", "--out", f"merged-{name}")
        same = ("data.evaluation=data/problems-dev.jsonl", *sampled)
        output = rlcore(tmp_path, "eval", "-p", "gsm8k-tools", "--json", f"model=merged-{name}", *same)
        assert json.loads(output)["accuracy"] == pytest.approx(last, abs=0.02), name
    assert '[algorithm.loss]\nid = "gspo"' in (tmp_path / "runs/gspo/config.toml").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_chain_with_adapters(tmp_path: Path) -> None:
    prepared(tmp_path)
    adapter = "  lora: {r: 8, lora_alpha: 16, target_modules: [q_proj, v_proj], lora_dropout: 0.05, bias: none}\n"
    for name in ("sft.yaml", "grpo.yaml"):
        (tmp_path / name).write_text((tmp_path / name).read_text(encoding="utf-8") + adapter, encoding="utf-8")
    rlcore(tmp_path, "run", "-c", "sft.yaml", "name=sft", "trainer.steps=2", "evaluation.every=0")
    assert (tmp_path / "runs/sft/checkpoints/last/model/adapter_model.safetensors").is_file()
    rlcore(tmp_path, "merge", "runs/sft", "--out", "merged-sft")
    assert "rank = 8" in rlcore(tmp_path, "run", "-p", "gsm8k-tools", "-c", "grpo.yaml", "--dry-run", "-v")
    short = ("trainer.steps=1", "rollout.group_size=2", "evaluation.every=0")
    output = rlcore(tmp_path, "run", "-p", "gsm8k-tools", "-c", "grpo.yaml", "name=grpo", *short)
    assert "LoRA of rank 8" in output


@pytest.mark.proof
@pytest.mark.timeout(14400)
def test_full_chain_on_every_seed(tmp_path: Path) -> None:
    found: dict[int, Mapping[str, Stage]] = {}
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        found[seed] = chain(prepared(folder), supervised=(f"seed={seed}",), reinforced=(f"seed={seed}",))
        write_table(found)
    for stages in found.values():
        assert stages["sft"].greedy < 0.2
        assert min(stages["grpo"].greedy, stages["gspo"].greedy) > 0.8


def write_table(found: Mapping[int, Mapping[str, Stage]]) -> None:
    """Write the results to the table in the README."""
    lines = [
        "Accuracy on the 128 held-out problems, with greedy decoding and with four samples each:",
        "",
        "| model | seed | greedy | sampled | seconds of training |",
        "|---|---|---|---|---|",
    ]
    shown = {"sft": "after SFT", "grpo": "after GRPO", "gspo": "after GSPO"}
    for name, title in shown.items():
        for seed, stages in found.items():
            one = stages[name]
            lines.append(f"| {title} | {seed} | {one.greedy:.3f} | {one.sampled:.3f} | {one.seconds:.0f} |")
    written = f"Written by `uv run pytest -m proof {Path(__file__).relative_to(REPOSITORY)}`"
    lines += ["", f"{written} at commit {commit()}, one thread on {os.cpu_count()} cores."]
    text = README.read_text(encoding="utf-8")
    assert MEASURED.search(text)
    README.write_text(MEASURED.sub(lambda match: "\n".join(lines) + "\n", text), encoding="utf-8")
