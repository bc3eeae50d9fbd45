"""An evaluation of a policy on tasks, under the protocol robotwin-v2."""

from __future__ import annotations

import importlib.metadata
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.atomic_files import write_whole
from rlcore.errors import NotInstalledError, UserError, WriteError, did_you_mean
from rlcore.plugins.loading import pip_line

from rl_plugin_robotwin.evaluation.arenas import bundled_tasks
from rl_plugin_robotwin.evaluation.jobs import Setting
from rl_plugin_robotwin.evaluation.results import PROTOCOL, Candidate, TaskResult, overall
from rl_plugin_robotwin.evaluation.seeds import FIRST, counted, feasible, read_seeds, write_seeds
from rl_plugin_robotwin.evaluation.workers import Workers

Say = Callable[[str], None]
LIBRARIES = ("rlcore-core", "rl-plugin-robotwin", "sapien", "numpy", "gymnasium", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is evaluated."""

    tasks: Sequence[str]
    setting: Setting
    episodes: int = 100
    series: int = 0
    expert_filter: bool = True
    workers: int = 1
    seeds: Path | None = None
    """A list of seeds: reused if it exists, otherwise written."""
    out: Path | None = None
    """Folder of ``results.json`` and ``videos/``."""
    videos: int = 0
    """Episodes of each task with a video."""


def evaluate(request: Request, say: Say = lambda line: None) -> dict[str, Any]:
    """Evaluate, and return the contents of ``results.json``. All but ``timing`` depends on the request alone.

    Args:
        request: what is evaluated
        say: called with lines about the progress

    Raises:
        UserError: something is missing, or too few seeds are feasible.
    """
    if request.videos:
        if request.out is None:
            raise UserError("videos need a folder", where="--videos", fix="give one with --out")
        _check_videos()
    key = _key(request)
    _make_folders(request)
    known = read_seeds(request.seeds, key) if request.seeds is not None else {}
    began = time.monotonic()
    results, times, lost = [], {}, []
    with Workers(request.setting, request.workers) as workers:
        for task in request.tasks:
            start = time.monotonic()
            candidates = _candidates(request, workers, task, known)
            if request.seeds is not None and len(known.get(task, ())) < len(candidates):
                known[task] = candidates
                write_seeds(request.seeds, key, known)
            result, unseen = _evaluated(request, workers, task, candidates)
            results.append(result)
            lost += unseen
            times[task] = time.monotonic() - start
            say(line_of(result))
            for text in unseen:
                say(f"no video: {text}")
    found = {
        "protocol": PROTOCOL,
        **key,
        "policy": request.setting.policy,
        "actions_of_a_chunk": request.setting.executed,
        "inputs": dict(request.setting.inputs),
        "episodes": request.episodes,
        "options": dict(request.setting.place.options),
        "tasks": {result.task: result.summary() for result in results},
        "overall": overall(results),
        "versions": _versions(),
        "missing_videos": lost,
        "timing": {"seconds": time.monotonic() - began, "tasks": times, "workers": request.workers},
    }
    if request.out is not None:
        try:
            write_whole(request.out / "results.json", json.dumps(found, indent=1) + "\n")
        except WriteError as error:
            fix = (
                "free disk space and evaluate again; the rates above are complete, and --seeds keeps the list of seeds"
            )
            raise WriteError(
                "the results cannot be written", found=str(error.found), where=str(request.out), fix=fix
            ) from error
    return found


def _check_videos() -> None:
    try:
        from rlcore_control.videos import check_writer
    except ImportError as error:
        fix = pip_line(["rl-plugin-robotwin[train]"])
        raise NotInstalledError("videos need rlcore-control", found=str(error), where="--videos", fix=fix) from error
    check_writer()


def _make_folders(request: Request) -> None:
    """Make the folders of the results and of the list of seeds, before anything is played. Raises WriteError."""
    for option, folder in (("--out", request.out), ("--seeds", request.seeds and request.seeds.parent)):
        if folder is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            found = error.strerror or str(error)
            raise WriteError(f"{folder} is not a folder that can be written to", found=found, where=option) from error


def line_of(result: TaskResult) -> str:
    """One line about a task."""
    summary = result.summary()
    if summary["success"] is None:
        return f"{result.task}: no result, {result.exceptions} exceptions"
    low, high = summary["interval"]
    excluded = f", {result.exceptions} exceptions not counted" if result.exceptions else ""
    rate = f"{summary['success']:.1%} ({low:.1%} to {high:.1%})"
    return f"{result.task}: {rate}, {result.successes} of {result.scored} episodes{excluded}"


def _key(request: Request) -> dict[str, Any]:
    """What decides which seeds are feasible."""
    place = request.setting.place
    version = None
    if set(request.tasks) - set(bundled_tasks()):
        from rl_plugin_robotwin.robotwin_checkout.checkout import find_checkout

        own = [task for task in request.tasks if task not in bundled_tasks()]
        try:
            checkout = find_checkout(place.checkout)
        except UserError as error:
            near = next(filter(None, (did_you_mean(task, bundled_tasks()) for task in own)), None)
            error.found = f"{error.found}, for {', '.join(own)}"
            error.fix = f"{near} Otherwise, {error.fix}" if near else error.fix
            raise
        for task in own:
            checkout.check_task(task)
        version = checkout.version
    return {
        "level": place.level,
        "instructions": place.instructions,
        "expert_filter": request.expert_filter,
        "first_seed": FIRST * (1 + request.series),
        "robotwin": version,
    }


def _candidates(request: Request, workers: Workers, task: str, known: dict[str, list[Candidate]]) -> list[Candidate]:
    found = known.get(task, [])
    if len(counted(found)) < request.episodes:
        filtered = request.expert_filter
        return feasible(workers, task, request.episodes, series=request.series, filtered=filtered)
    last = counted(found)[request.episodes - 1]
    return found[: found.index(last) + 1]


def _evaluated(
    request: Request, workers: Workers, task: str, candidates: list[Candidate]
) -> tuple[TaskResult, list[str]]:
    folder = (request.out or Path()) / "videos" / task
    jobs = [
        (task, candidate, folder / f"{candidate.seed}.mp4" if index < request.videos else None)
        for index, candidate in enumerate(counted(candidates))
    ]
    played = list(workers.do("play", jobs))
    episodes = tuple(episode for episode, _ in played)
    return TaskResult(task=task, candidates=tuple(candidates), episodes=episodes), [text for _, text in played if text]


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
