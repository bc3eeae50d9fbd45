"""The named recipes of the plugins for GUI agents, and the arguments of the launchers of GUI-Rise."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands_here import Call, pretend_packages
from recorded_episodes import aitw_step, mind2web_action, mind2web_episode, write_aitw, write_mind2web
from workspace import ROOT

PLUGINS = ("aitw", "mind2web")
SIZES = ("qwen2.5-vl-3b", "qwen2.5-vl-7b")
VARIANTS = ("", "-gspo", "-lora", "-lora-gspo")
REINFORCED = tuple(size + variant for size in SIZES for variant in VARIANTS)
DRAWN = ("data.train=generated", "data.evaluation=generated", "data.drawn=256", "data.held_out=4")
TESTS = ("tests/*", "packages/*/tests", "plugins/*/tests")
DEFECTS = ROOT / "plugins" / "rl-plugin-aitw" / "defects.md"
SCRIPTS = ROOT / "packages" / "rlcore-compat" / "tests" / "verl_scripts.json"
SETS = {
    "algorithm.advantage.id": "grpo",
    "algorithm.entropy": 0,
    "algorithm.kl.coefficient": 0.01,
    "algorithm.kl.estimator": "k3",
    "checkpoint.every": 40,
    "rollout.group_size": 16,
    "rollout.max_context_tokens": 10240,
    "rollout.max_new_tokens": 2048,
    "rollout.max_prompt_tokens": 8192,
    "rollout.vllm.enforce_eager": True,
    "rollout.vllm.gpu_memory_utilization": 0.7,
    "rollout.vllm.image_cache_gib": 0.0,
    "rollout.vllm.max_num_seqs": 4,
    "rollout.vllm.sleep": True,
    "rollout.vllm.tensor_parallel_size": 2,
    "strategy.id": "fsdp2",
    "strategy.processes": 8,
    "trainer.gradient_checkpointing": True,
    "trainer.learning_rate": 1e-6,
    "trainer.steps": "3 passes",
    "trainer.tasks_per_step": 128,
    "trainer.updates_per_rollout": 4,
    "warmup.steps": 0,
}
"""What the launchers decide, apart from names and paths."""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata of vLLM and wandb. A dry run reads their versions and does not import them."""
    pretend_packages(monkeypatch, tmp_path, "vllm", "wandb")


def recipe(plugin: str, name: str) -> dict[str, Any]:
    folder = ROOT / "plugins" / f"rl-plugin-{plugin}" / "src" / f"rl_plugin_{plugin}" / "recipes"
    return tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("name", [*REINFORCED, "qwen2.5-vl-3b-sft"])
def test_named_recipe_passes_a_dry_run(
    plugin: str, name: str, packages: None, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rlcore("run", "-p", plugin, "-r", name, "--dry-run", "-v", *DRAWN) == 0, capsys.readouterr().err
    assert "Qwen/Qwen2.5-VL-" in capsys.readouterr().out


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("size", SIZES)
def test_variants_of_a_recipe_differ_only_in_their_tables(plugin: str, size: str) -> None:
    plain = recipe(plugin, size)
    for variant in VARIANTS[1:]:
        other = recipe(plugin, size + variant)
        assert {table for table in other if other[table] != plain.get(table)} == {
            "summary",
            *(["algorithm"] if "gspo" in variant else []),
            *(["lora", "trainer"] if "lora" in variant else []),
        }
        assert other["trainer"] | {"learning_rate": plain["trainer"]["learning_rate"]} == plain["trainer"]
        assert (
            other["algorithm"] | {key: plain["algorithm"][key] for key in ("loss", "aggregation")} == plain["algorithm"]
        )


@pytest.mark.parametrize(("plugin", "size"), [(plugin, size) for plugin in PLUGINS for size in SIZES])
def test_recipes_of_both_plugins_have_the_same_values(plugin: str, size: str) -> None:
    other = recipe(PLUGINS[0], size)
    found = recipe(plugin, size)
    own = {"summary", "environment", "reward", "data", "observers"}
    assert {table: found[table] for table in found if table not in own} == {
        table: other[table] for table in other if table not in own
    }


@pytest.mark.parametrize("plugin", PLUGINS)
def test_summary_reward_needs_the_next_steps(
    plugin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if plugin == "aitw":
        source = write_aitw(tmp_path, {"general": [[aitw_step("e", 0), aitw_step("e", 1)]]})
    else:
        source = write_mind2web(tmp_path, [mind2web_episode("e", [mind2web_action("a"), mind2web_action("b")])])
    assert rlcore("data", "prepare", plugin, f"source={source}", "images=images", "out=a.parquet") == 0
    reward = f"reward=[{{id='{plugin}'}},{{id='{plugin}-history-summary',weight=0.25}}]"
    data = (
        "warmup.steps=0",
        "data.train=a.parquet",
        "data.evaluation=[]",
        "evaluation.every=0",
        "trainer.tasks_per_step=1",
    )
    assert rlcore("run", "-p", plugin, "--dry-run", "-v", reward, *data) == 2
    said = capsys.readouterr().err
    assert "needs the next step of each task" in said
    assert "set data.next_step=true" in said
    assert "from   command line: reward" in said
    assert not list(tmp_path.glob("runs/*"))


def launcher(index: int) -> list[str]:
    """The arguments of one of the two published scripts, with the model that the user must fill in."""
    keys: Mapping[str, Mapping[str, str]] = json.loads(SCRIPTS.read_text(encoding="utf-8"))["gui-rise"]["keys"]
    model = {"actor_rollout_ref.model.path": "Qwen/Qwen2.5-VL-3B-Instruct"}
    return [
        f"{key}={model.get(key, value)}"
        for key, values in keys.items()
        for value, scripts in values.items()
        if scripts in (str(index), "0-1")
    ]


@pytest.mark.parametrize("index", [0, 1])
def test_launcher_arguments_set_the_published_values(
    index: int, rlcore: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    words = launcher(index)
    assert rlcore("config", "show", "--origin", "--json", "-p", PLUGINS[index], *words) == 0
    shown = capsys.readouterr()
    found: Mapping[str, Any] = json.loads(shown.out)
    assert {key: found[key]["value"] for key in SETS} == SETS
    assert {found[key]["origin"].partition(":")[0] for key in SETS} == {"command line"}
    reported = {line.partition(" sets nothing: ")[0].partition(" -> ")[0] for line in shown.err.splitlines()}
    assert reported == set(words)


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("name", ["default", *REINFORCED, "qwen2.5-vl-3b-sft"])
def test_recipes_use_no_tracker_that_needs_an_account(plugin: str, name: str) -> None:
    assert "trackers" not in recipe(plugin, name)


def test_every_known_defect_has_a_row_and_existing_tests() -> None:
    page = DEFECTS.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\d+) \| ", page, re.MULTILINE)
    last = {"D": 22, "R": 11, "H": 11, "T": 11, "E": 7}
    assert rows == [f"{letter}{number}" for letter, most in last.items() for number in range(1, most + 1)]
    texts = {path: path.read_text(encoding="utf-8") for place in TESTS for path in ROOT.glob(f"{place}/test_*.py")}
    named = re.findall(r"`(?:(test_\w+\.py)::)?(test_\w+)`", page)
    assert len(named) > 50
    for file, test in named:
        found = [text for path, text in texts.items() if path.name == file or not file]
        assert any(f"def {test}(" in text for text in found), (file, test)
