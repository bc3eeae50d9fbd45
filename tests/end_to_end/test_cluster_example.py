"""``examples/cluster``: the script with real Ray nodes on this machine, and the manifests against KubeRay's fields."""

from __future__ import annotations

import os
import secrets
import shutil
import string
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import blocks
from running_processes import processes_with
from workspace import ROOT

FOLDER = ROOT / "examples" / "cluster"
SCRIPT = FOLDER / "cluster.sh"
MARK = "RLCORE_TEST_CLUSTER"
"""An environment variable by which the processes of a cluster are found."""
SSH = f"""
import os, subprocess, sys, threading

# The other side has neither the variables nor the folder of this one, and is not ended by signals to this process.
kept = {{name: os.environ[name] for name in ("HOME", "{MARK}")}}
ends = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}}
there = subprocess.Popen(["bash", "-c", sys.argv[-1]], cwd="/", env=kept, start_new_session=True, bufsize=0, **ends)

def send():
    while data := os.read(0, 4096):
        there.stdin.write(data)
    there.stdin.close()

threading.Thread(target=send, daemon=True).start()
while data := os.read(there.stdout.fileno(), 4096):
    os.write(1, data)
os._exit(there.wait())
"""
TOOLS = {
    "scontrol": 'printf "%s\\n" $SLURM_JOB_NODELIST',
    # The command of a step stands after its options.
    "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "ssh": f"exec {sys.executable} -c '{SSH}' \"$@\"",
    "ray": f'exec {sys.executable} -m ray.scripts.scripts "$@" $([[ $* == *--head* ]] || echo --num-cpus=1)',
    "rlcore": f'exec {sys.executable} -m rlcore "$@"',
}
SMALL = ("-p", "gsm8k-tools", "trainer.tasks_per_step=4", "trainer.steps=2", "warmup.steps=10", "evaluation.every=0")


def surroundings(place: Path, **variables: str) -> dict[str, str]:
    """Variables with the programs of a cluster, all of which run on this machine."""
    programs = place / "bin"
    programs.mkdir()
    for name, text in TOOLS.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, MARK: secrets.token_hex(8), "OMP_NUM_THREADS": "1", **variables}


def run(place: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(SCRIPT), *words]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=600, check=False)


def processes(mark: str) -> list[str]:
    """The command lines of the processes of a cluster that still run."""
    return list(processes_with(f"{MARK}={mark}").values())


def test_script_is_sound_bash() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    text = SCRIPT.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text
    assert "ray stop" not in text  # it ends the clusters of others, too
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", SCRIPT], check=True)


@pytest.mark.parametrize("words", [[], ["-p", "gsm8k-tools"]])
def test_missing_hosts_or_words_are_a_usage_error(words: list[str], tmp_path: Path) -> None:
    done = run(tmp_path, {**os.environ, "SLURM_JOB_ID": "", "HOSTS": ""}, *words)
    assert done.returncode == 2
    assert "usage: sbatch cluster.sh WORDS..." in done.stderr


def test_machine_with_another_folder_is_named(tmp_path: Path) -> None:
    environment = surroundings(tmp_path, HOSTS="localhost other", PORT="24310")
    (tmp_path / "bin" / "ssh").write_text('#!/usr/bin/env bash\nbash -c "rm -f .rlcore-cluster-*; ${@: -1}"\n')
    done = run(tmp_path, environment, *SMALL)
    assert done.returncode == 2
    assert "its folder is another one than that of the first machine: share it" in done.stderr
    assert "error: other cannot take part in the cluster" in done.stderr
    assert not list(tmp_path.glob(".rlcore-cluster-*"))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["slurm", "ssh"])
def test_run_with_servers_leaves_nothing(kind: str, tmp_path: Path) -> None:
    hosts, number = "localhost 127.0.0.1", 1000 + os.getpid() % 400
    given = {"SLURM_JOB_ID": str(number), "SLURM_JOB_NODELIST": hosts} if kind == "slurm" else {"HOSTS": hosts}
    environment = surroundings(tmp_path, **given, PORT=str(20000 + 5 * number), SERVE_REWARD="math-numeric-equal")
    if kind == "ssh":
        environment.pop("SLURM_JOB_ID", None)
        environment |= {"SERVE_ENVIRONMENT": "-p gsm8k-tools", "SERVE_SANDBOX": ""}
    done = run(tmp_path, environment, *SMALL, "name=there")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 worker of the Ray cluster localhost:" in done.stdout
    assert "the reward 'math-numeric-equal' is computed by the server 127.0.0.1:" in done.stdout
    if kind == "ssh":
        assert "the environment 'gsm8k-tools' runs on the server 127.0.0.1:" in done.stdout
        assert "sandbox   served: 127.0.0.1:" in done.stdout
    assert (tmp_path / "runs/there/metrics.jsonl").read_text(encoding="utf-8").count("\n") == 2
    until = time.monotonic() + 60
    while left := processes(environment[MARK]):
        assert time.monotonic() < until, left
        time.sleep(0.5)
    assert not list(tmp_path.glob(".rlcore-cluster-*"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_several_machines_train(tmp_path: Path) -> None:
    port = str(20000 + 5 * (1400 + os.getpid() % 400))
    environment = surroundings(tmp_path, HOSTS="localhost 127.0.0.1 127.0.0.2", PROCESSES="2", PORT=port)
    environment.pop("SLURM_JOB_ID", None)
    done = run(tmp_path, environment, *SMALL, "strategy.id=ddp", "name=there")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "processes 2 in the Ray cluster localhost:" in done.stderr
    assert "1 worker of the Ray cluster localhost:" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"PORT": "none"}, "error: ray start failed on localhost: Error: Invalid value for '--port'"),
        ({"PORT": "24320", "SERVE_REWARD": "absent"}, "error: rlcore serve failed on localhost"),
    ],
)
def test_a_piece_that_ends_is_named_at_once(variables: dict[str, str], error: str, tmp_path: Path) -> None:
    environment = surroundings(tmp_path, SLURM_JOB_ID="", HOSTS="localhost", **variables)
    done = run(tmp_path, environment, *SMALL)
    assert done.returncode == 2
    assert error in done.stderr
    assert "nothing listens" not in done.stderr
    assert not processes(environment[MARK])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_trial_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command = next(blocks(FOLDER / "README.md")).text.splitlines()[-1].removeprefix("$ ")
    environment = surroundings(tmp_path, SLURM_JOB_ID="", PORT="24330")
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 worker of the Ray cluster" in done.stdout
    (metrics,) = tmp_path.glob("runs/*/metrics.jsonl")
    assert '"step": 2,' in metrics.read_text(encoding="utf-8")


FIELDS = {
    "": {"entrypoint", "backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "rayClusterSpec"},
    "rayClusterSpec": {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"},
    "authOptions": {"mode"},
    "headGroupSpec": {"rayStartParams", "template"},
    "workerGroupSpecs": {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"},
}
"""Fields that the reference of KubeRay's API lists for the version ``ray.io/v1``."""


def documents(name: str) -> list[Any]:
    values = {"NAME": "first", "IMAGE": "registry/rlcore", "WORDS": "-p gsm8k-tools", "WORKERS": "2", "GPUS": "1"}
    values |= {"RUNS": "runs", "REWARD": "llm-judge model=judge"}
    text = (FOLDER / name).read_text(encoding="utf-8")
    return list(yaml.safe_load_all(string.Template(text).substitute(values)))


def test_manifests_have_fields_of_kuberay() -> None:
    (job,) = documents("rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    tables = {"": job["spec"], "rayClusterSpec": cluster, "authOptions": cluster["authOptions"]}
    tables |= {"headGroupSpec": cluster["headGroupSpec"], "workerGroupSpecs": cluster["workerGroupSpecs"][0]}
    for name, table in tables.items():
        assert table.keys() <= FIELDS[name], name
    assert all(isinstance(value, str) for value in cluster["headGroupSpec"]["rayStartParams"].values())
    deployment, service = documents("reward.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert service["metadata"]["name"] == "first-reward"
    pods = [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    for pod in [*pods, deployment["spec"]["template"]]:
        (container,) = pod["spec"]["containers"]
        assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "first-token", "key": "token"}
