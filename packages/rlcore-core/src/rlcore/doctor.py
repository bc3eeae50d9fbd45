"""The checks of ``rlcore doctor``. Every finding that is not ``ok`` has a fix."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlcore.checks import Finding, failure_of, findings_of
from rlcore.config.layers import Layer, file_layer, override_layers, recipe_layer
from rlcore.config.requirements import unmet
from rlcore.config.resolve import resolve
from rlcore.console.wording import counted
from rlcore.errors import UserError
from rlcore.models.shape import shape_of_name
from rlcore.plugin_calls import error_text, plugin_code
from rlcore.plugins.discovery import State, canonical, is_host
from rlcore.plugins.loading import pip_line
from rlcore.plugins.registry import Registry
from rlcore.runs.checkpoint_folder import check_checkpoint, check_kept_model, has_manifest, kept_models
from rlcore.runs.checkpoints import checkpoint_to_resume, checkpoints_of
from rlcore.runs.directory import config_layer
from rlcore.runs.machine import GIB, memory_bytes
from rlcore.runs.metrics import metrics_gap, metrics_lines
from rlcore.runs.superseded import FOLDER as SUPERSEDED
from rlcore.runs.surroundings import usable_cores
from rlcore.session.checks import run_findings
from rlcore.session.memory import estimate_memory
from rlcore.session.plan import RunPlan
from rlcore.session.reward_probes import probe_plugin, probe_recipe
from rlcore.session.session import RunSession

MIN_DISK_BYTES = 2 * GIB
"""Space for a few checkpoints of a small model."""
MIN_MEMORY_BYTES = 4 * GIB
"""Memory that the default recipes need, including torch."""
PROBE = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
found = [(torch.cuda.get_device_name(i), torch.cuda.get_device_properties(i).total_memory) for i in range(count)]
print(json.dumps({"threads": torch.get_num_threads(), "gpus": found, "built_for_cuda": torch.version.cuda}))
"""


def examine(
    plugin: str | None = None, recipe: str | None = None, words: Sequence[str] = ()
) -> Iterator[tuple[str, Finding]]:
    """Run all registered checks, and check a recipe; yields pairs of check id and finding.

    An exception in a check is reported as a finding. Rewards that ask a service ask it once (`RewardSpec.probe`).

    Args:
        plugin: its recipe is checked; the rewards of a plugin without recipes are checked with default options
        recipe: a recipe of the plugin (default: ``default``), or with its plugin (``PLUGIN/NAME``), or a file
        words: overrides of the recipe or of the rewards

    Raises:
        UserError: there is no such plugin or recipe, or an override is invalid.
    """
    registry = Registry()
    overrides = override_layers(words)
    probed = probe_plugin(registry, plugin, overrides) if plugin is not None and recipe is None else None
    layer = None
    if probed is None and (plugin is not None or recipe is not None):
        layer = _recipe_layer(registry, plugin, recipe)
    for offer in registry.offers("check"):
        id, name_of_plugin = offer.spec.id, offer.plugin.named
        try:
            # Its own checks may take long, such as the first import of torch, which says nothing about a plugin.
            with plugin_code("" if is_host(offer.plugin) else f"the check {id!r} of the plugin {name_of_plugin}"):
                findings = findings_of(registry.load("check", id)())
        except Exception as error:
            findings = [
                Finding(status="fail", text=f"the check of the plugin {name_of_plugin} failed: {error_text(error)}")
            ]
        yield from ((id, finding) for finding in findings)
    if probed is not None:
        yield from probed
    if layer is not None:
        name, values = layer
        yield from ((name, finding) for finding in recipe_findings(registry, name, values, overrides))
        yield from probe_recipe(registry, name, [values, *overrides])


def _recipe_layer(registry: Registry, plugin: str | None, recipe: str | None) -> tuple[str, Layer]:
    """The name and the values of a recipe."""
    if recipe is not None and recipe.endswith((".toml", ".yaml", ".yml")):
        return recipe, file_layer(Path(recipe))
    if plugin is None and "/" not in (recipe or ""):
        raise UserError(f"the recipe {recipe!r} needs a plugin", fix="give -p PLUGIN -r NAME, or -r PLUGIN/NAME")
    id = recipe or ""
    if plugin is not None:
        id = f"{registry.plugin(plugin).name}/{(recipe or 'default').rpartition('/')[2]}"
    return id, recipe_layer(registry, id)


def examine_run(path: Path) -> Iterator[tuple[str, Finding]]:
    """Compare the checkpoints of a run, or one of them, with their checksums, and look for gaps in the metrics.

    Raises:
        UserError: the path is neither a run directory nor a checkpoint in one.
    """
    run, newest = checkpoint_to_resume(path)
    checkpoints = checkpoints_of(run)
    if checkpoints and path.resolve() != run.resolve():
        checkpoints = [newest] if newest is not None else []
    for checkpoint in checkpoints:
        yield "checkpoint", _checkpoint(checkpoint)
    if not checkpoints:
        yield "checkpoint", Finding(status="ok", text="there is none yet")
    for model in kept_models(run):
        yield "model", _complete(model, check_kept_model)
    metrics = run / "metrics.jsonl"
    lines = metrics_lines(metrics)
    steps = [row["step"] for row, _ in lines if row is not None]
    gap = metrics_gap(lines, last=max([*steps, *(int(checkpoint.name) for checkpoint in checkpoints)], default=0))
    trackers = config_layer(run).tree.get("trackers")
    if gap is None:
        yield "metrics", Finding(status="ok", text=f"{metrics} has {counted(len(lines), 'line')}")
    elif lines or not isinstance(trackers, dict) or "jsonl" in trackers.get("use", ["jsonl"]):
        yield "metrics", Finding(status="warn", text=f"{metrics} has {gap}")
    for folder in sorted(run.glob(f"{SUPERSEDED}/*")):
        yield "moved", Finding(status="ok", text=f"{folder}: results that a resumed run replaced")


def _checkpoint(folder: Path) -> Finding:
    if not has_manifest(folder):
        fix = "its trainer can write them with rlcore.runs.checkpoint_folder.write_manifest"
        return Finding(status="warn", text=f"{folder} has no checksums", fix=fix)
    return _complete(folder, check_checkpoint)


def _complete(folder: Path, check: Callable[[Path], None]) -> Finding:
    try:
        check(folder)
    except UserError as error:
        found = failure_of(error)
        return replace(found, text=f"{folder}: {found.text}")
    return Finding(status="ok", text=f"{folder} is complete")


def python() -> Iterator[Finding]:
    """The Python version."""
    version = ".".join(map(str, sys.version_info[:3]))
    if tuple(sys.version_info) < (3, 11):  # as a tuple, because linters assume a supported version
        yield Finding(status="fail", text=f"Python {version}", fix="install Python 3.11 or 3.12")
    else:
        yield Finding(status="ok", text=f"Python {version} ({sys.executable})")
    if sys.dont_write_bytecode:
        text = "PYTHONDONTWRITEBYTECODE is set: every start recompiles modules, which takes seconds for torch"
        yield Finding(status="warn", text=text, fix="unset PYTHONDONTWRITEBYTECODE")


def libraries() -> Iterator[Finding]:
    """Installed versions of the packages that training needs."""
    needed_by = {
        "rlcore-rollout": pip_line(["rlcore"]),
        "rlcore-trainer": pip_line(["rlcore"]),
        "torch": pip_line(["rlcore-trainer"]),
        "transformers": pip_line(["rlcore-trainer"]),
    }
    for name, fix in needed_by.items():
        version = _version(name)
        if version is None:
            yield Finding(status="warn", text=f"{name} is not installed, but training needs it", fix=fix)
        else:
            yield _outdated(name, version) or Finding(status="ok", text=f"{name} {version}")


def cpu() -> Iterator[Finding]:
    """Available cores, compared with the number of threads that torch starts."""
    cores = usable_cores()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > cores:
        text = f"OMP_NUM_THREADS={threads} on {counted(cores, 'core')}: threads compete for cores"
        yield Finding(status="warn", text=text, fix=f"export OMP_NUM_THREADS={cores}")
    else:
        yield Finding(status="ok", text=counted(cores, "core") + (f", OMP_NUM_THREADS={threads}" if threads else ""))


def gpu() -> Iterator[Finding]:
    """GPUs that torch detects, in a separate process because a broken driver may crash it."""
    if _version("torch") is None:
        yield Finding(status="ok", text="not checked: torch is not installed")
        return
    reinstall = "pip install --force-reinstall torch"
    try:
        done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        yield Finding(status="fail", text="importing torch timed out (120 s)", fix=reinstall)
        return
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        yield Finding(status="fail", text=f"importing torch failed: {last}", fix=reinstall)
        return
    found = json.loads(done.stdout.strip().splitlines()[-1])
    for name, total in found["gpus"]:
        yield Finding(status="ok", text=f"{name}, {total / GIB:.0f} GiB")
    if not found["gpus"]:
        if shutil.which("nvidia-smi"):
            text = f"nvidia-smi is installed, but torch (CUDA {found['built_for_cuda']}) finds no GPU"
            yield Finding(status="warn", text=text, fix="run nvidia-smi to check the driver, and update it")
        else:
            yield Finding(status="ok", text=f"none: training on the CPU, {counted(found['threads'], 'thread')}")


def memory() -> Iterator[Finding]:
    """System memory, or the memory limit of the container."""
    total = memory_bytes()
    if total is not None and total < MIN_MEMORY_BYTES:
        text = f"{total / GIB:.1f} GiB; default recipes need {MIN_MEMORY_BYTES / GIB:.0f} GiB"
        yield Finding(status="warn", text=text, fix="use a machine with more memory, or close other programs")
    elif total is not None:
        yield Finding(status="ok", text=f"{total / GIB:.1f} GiB")


def disk() -> Iterator[Finding]:
    """Free space and write permission where the folder ``runs`` is created."""
    here = Path("runs").absolute()
    folder = next(path for path in (here, *here.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    text = f"{free / GIB:.{1 if free < MIN_DISK_BYTES else 0}f} GiB free in {folder}"
    if not os.access(folder, os.W_OK):
        yield Finding(status="fail", text=f"{folder} is not writable", fix="use another folder, or set runs=FOLDER")
    elif free < MIN_DISK_BYTES:
        yield Finding(status="warn", text=text, fix="free disk space, or set runs=FOLDER on another disk")
    else:
        yield Finding(status="ok", text=text)


def plugins() -> Iterator[Finding]:
    """The state of each plugin after importing it."""
    for plugin in Registry().plugins.load():
        title = f"{plugin.name} ({plugin.origin})"
        if plugin.state is State.OK:
            yield Finding(status="ok", text="; ".join([title, *plugin.notes]))
        elif plugin.state is State.DISABLED:
            yield Finding(status="warn", text=f"{title} is disabled", fix=plugin.fix)
        else:
            yield Finding(status="fail", text=f"{title} is {plugin.state}: {plugin.problem}", fix=plugin.fix)


def recipe_findings(registry: Registry, name: str, layer: Layer, overrides: Sequence[Layer] = ()) -> Iterator[Finding]:
    """Check the components, settings, data, model and memory of a recipe."""
    recipe = dict(layer.tree)
    missing = [text for text in recipe.get("requires", []) if unmet(text)]
    if missing:
        yield Finding(status="fail", text=f"not installed: {', '.join(missing)}", fix=pip_line(missing))
    usable = not missing
    for kind, id in _named_components(recipe):
        if kind == "environment" and any(map(_names_interpreter, [layer, *overrides])):
            continue  # it is imported there, with the settings
        try:
            registry.load(kind, id)
        except UserError as error:
            usable = False
            yield failure_of(error)
        else:
            yield Finding(status="ok", text=f"{kind} {id}")
    if usable:
        yield from _settings(registry, name, [layer, *overrides])


def _names_interpreter(layer: Layer) -> bool:
    """Whether a layer runs an environment in another interpreter."""
    given = layer.tree.get("environment")
    return any(isinstance(one, dict) and one.get("python") for one in (given if isinstance(given, list) else [given]))


def _settings(registry: Registry, name: str, layers: Sequence[Layer]) -> Iterator[Finding]:
    """The checks of a run before it loads its model, and an estimate of its memory."""
    try:
        run = RunSession(RunPlan(resolved=resolve(layers, registry, recipe=name)), registry)
    except UserError as error:
        yield failure_of(error)
        return
    try:
        found = list(run_findings(run))
        failures = [replace(one, text=f"{one.key}: {one.text}") for one in found if one.status == "fail"]
        notes = "".join(f"; {one.text}" for one in found)
        yield from failures or [Finding(status="ok", text=f"settings and data{notes}")]
    except UserError as error:
        yield failure_of(error)
    try:
        yield from _model(run)
    except UserError as error:
        yield failure_of(error)
    finally:
        run.discard()


def _model(run: RunSession) -> Iterator[Finding]:
    """Whether the model is on this machine, and the memory that the run needs."""
    path = run.config.model.path
    here = run.model_here()
    if here is None:
        text = f"the model {path} is not on this machine; the run downloads it"
        yield Finding(status="warn", text=text, fix="download it before, or give a local folder: model=FOLDER")
    model = here or shape_of_name(path)
    estimate = estimate_memory(run, model) if model is not None else None
    for line in estimate.lines() if estimate is not None else ():
        fits = estimate is None or estimate.fits
        fix = "" if fits else "use a machine with more memory, a smaller model, or an adapter: lora.rank=16"
        yield Finding(status="ok" if fits else "warn", text=" ".join(line.split()), fix=fix)


def _named_components(recipe: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and id of every component of a recipe, including defaults."""
    given = recipe.get("environment", {})
    for table in given if isinstance(given, list) else [given]:
        if environment := table.get("id"):
            yield "environment", environment
            yield "dataset", table.get("data", recipe.get("data", {})).get("id", environment)
        yield from (("reward", reward["id"]) for reward in table.get("reward", []) if "id" in reward)
    yield from (("reward", table["id"]) for table in recipe.get("reward", []) if "id" in table)
    yield "engine", recipe.get("rollout", {}).get("engine", "torch")
    for kind, default in (("sampler", "local"), ("trainer", "policy-gradient"), ("strategy", "single")):
        yield kind, recipe.get(kind, {}).get("id", default)
    path = recipe.get("model", {}).get("path", "")
    if path.startswith("builtin:"):
        yield "model", path.removeprefix("builtin:")
    yield from (("tracker", id) for id in recipe.get("trackers", {}).get("use", []))


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _outdated(name: str, version: str) -> Finding | None:
    """A finding when a package of rlcore does not support the installed version of ``name``."""
    from packaging.requirements import Requirement

    for host in ("rlcore-rollout", "rlcore-trainer"):
        for requirement in map(Requirement, (importlib.metadata.requires(host) or []) if _version(host) else []):
            matches = canonical(requirement.name) == canonical(name)
            if matches and not requirement.specifier.contains(version, prereleases=True):
                text = f"{name} {version}; {host} requires {requirement.specifier}"
                return Finding(status="fail", text=text, fix=pip_line([f"{name}{requirement.specifier}"]))
    return None


__all__ = ["Finding"]
