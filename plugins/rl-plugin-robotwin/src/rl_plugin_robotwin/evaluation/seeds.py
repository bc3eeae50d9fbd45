"""Which seeds count, and lists of them to reuse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlcore.atomic_files import write_whole
from rlcore.errors import DataError

from rl_plugin_robotwin.evaluation.results import PROTOCOL, Candidate
from rl_plugin_robotwin.evaluation.workers import Workers

FIRST = 100_000
"""RoboTwin's evaluations begin at seed ``FIRST * (1 + series)``."""
TRIES = 10
"""Candidates per episode that are tried at most, and as many more."""


def feasible(workers: Workers, task: str, count: int, *, series: int, filtered: bool) -> list[Candidate]:
    """The candidates until ``count`` of them are feasible, in the order of their seeds.

    Args:
        workers: let the expert try them
        task: name of the task
        count: how many are needed
        series: 0, 1, …; each has other seeds
        filtered: whether only seeds count with which the expert succeeds; if not, all count

    Raises:
        DataError: too few seeds are feasible.
    """
    first = FIRST * (1 + series)
    if not filtered:
        return [Candidate(seed=first + index, status="unchecked") for index in range(count)]
    limit = TRIES * count + TRIES
    tried: list[Candidate] = []
    found = 0
    for candidate in workers.do("try_seed", ((task, first + index) for index in range(limit))):
        tried.append(candidate)
        found += candidate.status == "success"
        if found == count:
            return tried
    failed = [one for one in tried if one.status != "success"]
    reasons = "; ".join(_reason(status, failed) for status in sorted({one.status for one in failed}))
    raise DataError(
        f"the expert of {task} succeeds with too few seeds",
        found=f"{found} of {len(tried)} from seed {first} on ({reasons})",
        where=f"the task {task}",
        fix="raise max_steps, evaluate fewer episodes with --episodes, or all seeds with --no-expert-filter",
    )


def _reason(status: str, tried: list[Candidate]) -> str:
    """How many candidates have a status, and the error of the first one."""
    those = [one for one in tried if one.status == status]
    return f"{len(those)} {status}" + (f", first: {those[0].error[:200]}" if those[0].error else "")


def counted(candidates: list[Candidate]) -> list[Candidate]:
    """Those that count."""
    return [one for one in candidates if one.status in ("success", "unchecked")]


def read_seeds(path: Path, key: Mapping[str, Any]) -> dict[str, list[Candidate]]:
    """The candidates of each task from a file; none without a file.

    Args:
        path: the file
        key: what must be equal for the seeds to be valid, such as the level

    Raises:
        DataError: the file is none of these, or of another protocol.
    """
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        own = content["key"]
        found = {task: [Candidate(**one) for one in listed] for task, listed in content["tasks"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            "this is not a list of seeds",
            found=f"{type(error).__name__}: {error}",
            where=str(path),
            fix="name another file: a new one is written",
        ) from error
    for name, value in {"protocol": PROTOCOL, **key}.items():
        if own.get(name) != value:
            raise DataError(
                "the list of seeds is for another evaluation",
                found=f"{name} = {own.get(name)!r}, not {value!r}",
                where=str(path),
                fix="give another file with --seeds",
            )
    return found


def write_seeds(path: Path, key: Mapping[str, Any], tasks: Mapping[str, list[Candidate]]) -> None:
    """Write the candidates of each task."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "key": {"protocol": PROTOCOL, **key},
        "tasks": {task: [asdict(one) for one in listed] for task, listed in tasks.items()},
    }
    write_whole(path, json.dumps(content, indent=1) + "\n")


__all__ = ["FIRST", "counted", "feasible", "read_seeds", "write_seeds"]
