"""The Slurm files of ``examples/visual-search``: addresses are arguments, and every command works."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from chat_server import free_port
from commands_here import write_metadata
from documents import blocks
from workspace import ROOT

PLUGIN = ROOT / "plugins" / "rl-plugin-visual-search"
RECIPE = PLUGIN / "src" / "rl_plugin_visual_search" / "recipes" / "qwen2.5-vl-7b-2x8.toml"
FOLDER = ROOT / "examples" / "visual-search" / "slurm"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
DRAWN = ("data.train=generated", "data.evaluation=generated", "data.drawn=64", "data.held_out=4", "--dry-run", "-v")
JUDGE = "http://judge.example:18901/v1"


def surroundings(place: Path, **variables: str) -> dict[str, str]:
    """Variables with the commands of this interpreter first in PATH, and metadata of vLLM."""
    write_metadata(place / "site", "vllm")
    path = os.pathsep.join([str(place / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(place / "site"), "HF_HUB_OFFLINE": "1", **variables}


def run(script: str, *words: str, place: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(FOLDER / script), *words]
    environment = surroundings(place, **variables)
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300, check=False)


def command_that_prints(place: Path, name: str) -> None:
    """A program of this name in PATH that prints its arguments."""
    path = place / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$@"\n')
    path.chmod(0o755)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_is_sound_bash_without_an_address(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    text = script.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text
    addresses = [word for word in text.split() if word.count(".") == 3 and word.replace(".", "").isdigit()]
    assert set(addresses) <= {"0.0.0.0"}
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True)


def test_judge_serves_and_writes_its_url(tmp_path: Path) -> None:
    command_that_prints(tmp_path, "vllm")
    done = run("judge.sh", "acme/judge-72b", "18999", place=tmp_path, JUDGE_HOST="node7", SLURM_GPUS_ON_NODE="2")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "judge.url").read_text() == "http://node7:18999/v1\n"
    words = done.stdout.split()
    assert words[:2] == ["serve", "acme/judge-72b"]
    pairs = dict(zip(words[2::2], words[3::2], strict=True))
    assert pairs["--served-model-name"] == "judge"
    assert (pairs["--port"], pairs["--tensor-parallel-size"]) == ("18999", "2")


def test_worker_passes_the_addresses_it_was_given(tmp_path: Path) -> None:
    command_that_prints(tmp_path, "torchrun")
    done = run("worker.sh", "node1:29400", JUDGE, "lora.rank=64", place=tmp_path, NODES="2", GPUS="8", RUN_NAME="a b")
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert {"--nnodes=2", "--nproc-per-node=8", "--rdzv-endpoint=node1:29400", "--rdzv-id=a b"} <= set(words)
    assert words[-3:] == ["name=a b", f'reward.0.base_url=["{JUDGE}"]', "lora.rank=64"]


def commands_in_the_recipe() -> list[list[str]]:
    """The commands in the comment at the beginning of the recipe."""
    lines = [line[1:].strip() for line in RECIPE.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return [shlex.split(line) for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line[:8] == "torchrun"]


def commands_in_the_example() -> list[list[str]]:
    shown = [command for block in blocks(FOLDER.parent / "README.md") for command in block.commands]
    return [command for command in shown if command[0] == "torchrun"]


@pytest.mark.parametrize("commands", [commands_in_the_recipe, commands_in_the_example])
def test_documented_launch_is_that_of_the_worker(commands: Callable[[], list[list[str]]], tmp_path: Path) -> None:
    command_that_prints(tmp_path, "torchrun")
    done = run("worker.sh", "HEAD:29400", "http://JUDGE:18901/v1", place=tmp_path)
    words = done.stdout.splitlines()
    (command,) = commands()
    long = {"-p": "--plugin", "-r": "--recipe"}
    assert [long.get(word, word) for word in command[1:]][: len(words)] == words


@pytest.mark.parametrize(("script", "words"), [("worker.sh", ["node1:29400"]), ("train.sh", [])])
def test_missing_address_is_a_usage_error(script: str, words: list[str], tmp_path: Path) -> None:
    done = run(script, *words, place=tmp_path)
    assert done.returncode == 2
    assert "usage: sbatch" in done.stderr


@pytest.mark.long
def test_training_on_one_machine_passes_a_dry_run(tmp_path: Path) -> None:
    done = run("train.sh", JUDGE, *DRAWN, place=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Qwen2.5-VL-7B" in done.stdout


def test_head_writes_no_address_without_a_valid_port(tmp_path: Path) -> None:
    done = subprocess.run(["bash", str(FOLDER / "head.sh"), "head:29400"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "usage" in done.stderr


@pytest.mark.long
def test_workers_meet_at_the_head_and_pass_a_dry_run(tmp_path: Path) -> None:
    environment = surroundings(tmp_path, HEAD_HOST="127.0.0.1", NODES="2", GPUS="1")
    head = subprocess.Popen(["bash", str(FOLDER / "head.sh"), str(free_port())], cwd=tmp_path, env=environment)
    try:
        address = tmp_path / "head.address"
        wait_until(lambda: address.is_file() and address.read_text().endswith("\n"))
        where = address.read_text().strip()
        wait_until(lambda: is_listening(where))
        words = ["bash", str(FOLDER / "worker.sh"), where, JUDGE, *DRAWN]
        workers = [
            subprocess.Popen(
                words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for _ in range(2)
        ]
        outputs = [worker.communicate(timeout=240)[0] for worker in workers]
    finally:
        head.kill()
        head.wait()
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert "Qwen2.5-VL-7B" in "".join(outputs)


def is_listening(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def wait_until(condition: object, seconds: float = 120.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
