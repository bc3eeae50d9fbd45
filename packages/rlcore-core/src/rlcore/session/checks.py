"""Checks before heavy imports: installed packages, ids, files and rows. They take seconds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from rlcore.abilities import ChecksTasks, ProcessesConfig, TasksConfig, ToolsConfig
from rlcore.checks import Finding, failure, failure_of, findings_of, raise_failures, warning
from rlcore.config.origins import KeyPath
from rlcore.config.requirements import unmet_with_extras
from rlcore.config.schema import AUTO
from rlcore.episodes.tool_environment import tool_of
from rlcore.errors import DataError, NotInstalledError, PluginError, UserError
from rlcore.models.folder import local_folder
from rlcore.plugins.loading import load_attribute, pip_line
from rlcore.plugins.observers import check_observer
from rlcore.plugins.registry import asked
from rlcore.session.elsewhere import examined_environment, examined_rewards
from rlcore.session.model_inputs import check_images, check_tools_of_environments
from rlcore.session.processes import one_of_several_asked, world_size
from rlcore.specs import EnvironmentSpec, StrategySpec, TrainerSpec

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

TENSORBOARD = "tensorboard"
"""Id of the tracker that writes event files."""

GENERATED = ["generated"]
"""The tasks that a plugin generates itself: the default of several plugins for ``data.evaluation``."""


def check_run(run: RunSession, *, split: str = "evaluation") -> list[str]:
    """Check a run before it starts, and return notes on valid but surprising settings, one sentence each.

    Raises:
        ProblemsError: the settings or the data conflict; lists every such finding.
        UserError: a package, a file, a component or a row cannot be used.
    """
    return raise_failures(run.resolved, run_findings(run, split=split))


def run_findings(run: RunSession, *, split: str = "evaluation") -> list[Finding]:
    """What the checks of a run find. Missing packages, conflicts and unusable files are reported together.

    Args:
        run: a run, or an evaluation
        split: the split of an evaluation

    Raises:
        UserError: as `check_run`, if it is the only failure.
    """
    splits = ["train", *(["evaluation"] if run.config.evaluation.every else [])] if run.trains else [split]
    missing = _missing_packages(run)
    found: list[Finding] = []
    errors: list[tuple[UserError, str]] = []
    stages: tuple[tuple[str, Callable[[], Iterable[Finding]], bool], ...] = (
        ("run", lambda: _ids(run), True),
        ("run", lambda: _settings(run), True),
        ("model.path", lambda: _model(run), True),
        ("environment", lambda: _components(run), True),
        ("data", lambda: _tasks(run, splits), True),
        ("data", lambda: _task_contents(run, splits), False),
        ("trainer", lambda: _of_trainer(run, "trainer"), True),
        ("strategy", lambda: _of_trainer(run, "strategy"), True),
    )
    for key, stage, is_independent in stages:
        has_failed = bool(errors) or any(one.status == "fail" for one in found)
        if has_failed and not is_independent:
            continue
        try:
            found.extend(stage())
        except NotInstalledError as error:
            errors += [(error, key)] if missing is None else []
        except UserError as error:
            # The check of a trainer needs what was checked before, and may raise its error again, or another one.
            follows = has_failed and key in ("trainer", "strategy") and isinstance(error, PluginError)
            if not follows and str(error) not in {str(other) for other, _ in errors}:
                errors.append((error, key))
    told = [replace(failure_of(error, key), where=error.where or "") for error, key in errors]
    found = [one for one in found if one.text not in {other.text for other in told}]
    failed = any(one.status == "fail" for one in found)
    if missing is not None and not failed and not errors:
        raise missing
    if missing is None and not failed and len(errors) == 1:
        raise errors[0][0]
    if missing is not None:
        found.insert(0, replace(failure_of(missing, "run"), kind="not installed", where="the components of the run"))
    return found + told


def _settings(run: RunSession) -> Iterator[Finding]:
    """Whether the components fit together."""
    if run.trains:
        yield from _of_training(run)
    cell_s, step_s = run.config.sandbox.cell_s, run.config.rollout.environment_timeout_s
    if run.samples and run.runs_code and cell_s >= step_s:
        reason = "it must be less than rollout.environment_timeout_s, which otherwise ends the whole trajectory"
        fix = f"rollout.environment_timeout_s={2 * cell_s:g}"
        yield failure("sandbox.cell_s", f"{reason}: {cell_s:g} s for a cell, {step_s:g} s for a step", fix)
    engine, sampler = run.engine_spec, run.sampler_spec
    if run.samples:
        yield from _own(run, "sampler", sampler.id, ("sampler", "id"))
    for one in run.environments:
        environment = cast(EnvironmentSpec, run.registry.spec("environment", one.id))
        if environment.action not in sampler.actions:
            yield failure(
                "sampler.id",
                f"the sampler {sampler.id!r} cannot run the environment {environment.id!r}: "
                f"its actions are {environment.action}; the sampler runs {_listed(sampler.actions)}",
                "set sampler.id to another sampler; rlcore plugins list shows them",
            )
        if unread := environment.modalities - engine.modalities:
            yield failure(
                "rollout.engine",
                f"the engine {engine.id!r} cannot read the observations of the environment {environment.id!r}: "
                f"{_listed(unread)}; the engine reads {_listed(engine.modalities)}",
                "set rollout.engine to another engine; rlcore plugins list shows them",
            )
        yield from _own(run, "environment", one.id, one.at("environment", "id"), one)
        for index, table in enumerate(one.rewards):
            if not table.servers:
                yield from _own(run, "reward", table.id, (*one.at("reward"), str(index), "id"), one, index)


def _of_training(run: RunSession) -> Iterator[Finding]:
    """What concerns only runs that train."""
    engine, trainer = run.engine_spec, run.trainer_spec
    if not engine.trains:
        reason = f"the engine {engine.id!r} does not sample from the weights of the trainer"
        yield failure("rollout.engine", reason, "use it with rlcore eval, or train with rollout.engine=torch")
    if run.config.model.quantization != "none" and not trainer.quantizes:
        others = (one.id for one in run.registry.specs("trainer") if isinstance(one, TrainerSpec) and one.quantizes)
        fix = " or ".join(["model.quantization=none", *(f"trainer.id={id}" for id in others)])
        yield failure("model.quantization", f"the trainer {trainer.id!r} does not support model.quantization", fix)
    strategy, options = run.registry.spec("strategy", run.config.strategy.id), run.options("strategy")
    if isinstance(strategy, StrategySpec) and strategy.launch is None and world_size() > 1:
        reason = f"the strategy {strategy.id!r} supports one process; each of several would train a separate run"
        found = f"torchrun or accelerate launch set WORLD_SIZE={world_size()}"
        yield failure("strategy.id", f"{reason}: {found}", "strategy.id=ddp, or start rlcore run without a launcher")
    if one_of_several_asked() and not (isinstance(options, ProcessesConfig) and options.processes is not None):
        yield failure(
            "strategy.id",
            "accelerate launch was asked for several processes, but this process would train alone: without several "
            "GPUs, accelerate starts one process, or unconnected ones with mpirun, and sets no WORLD_SIZE",
            "run without a launcher: rlcore run … strategy.id=ddp strategy.processes=2 starts the processes",
        )
    use = run.config.trackers.use
    if run.config.layout == "stamped" and TENSORBOARD not in use:
        missing = [need for need in run.registry.spec("tracker", TENSORBOARD).needs if unmet_with_extras(need)]
        install = f", after {pip_line(missing)}" if missing else ""
        wanted = ", ".join(repr(id) for id in (*use, TENSORBOARD))
        text = f'no event files for TensorBoard are written; to enable them, set trackers.use="[{wanted}]"{install}'
        yield warning(text, "trackers.use")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _own(run: RunSession, kind: str, id: str, path: KeyPath, *arguments: object) -> Iterator[Finding]:
    """What the own check of a component finds; a finding without a key is about the component."""
    if target := getattr(run.registry.spec(kind, id), "check", None):
        what = f"the check of {run.registry.named(kind, id)}"
        check = load_attribute(target, what=what)
        for one in asked(what, lambda: findings_of(check(run, *arguments))):
            yield one if one.key else replace(one, key=".".join(path))


def _of_trainer(run: RunSession, kind: Literal["trainer", "strategy"]) -> Iterator[Finding]:
    if run.trains:
        yield from _own(run, kind, getattr(run.config, kind).id, (kind, "id"))


def _model(run: RunSession) -> tuple[()]:
    _folder(run)
    return ()


def _folder(run: RunSession) -> Path | None:
    """Look for the model folder."""
    if run.engine_spec.speaks != "tokens":
        return None
    return local_folder(run.config.model.path, where=run.resolved.origin(("model", "path")))


def _components(run: RunSession) -> Iterator[Finding]:
    """Import the components."""
    for environment in run.environments:
        if environment.is_hosted:
            yield from examined_environment(run, environment)
        else:
            run.load("environment", environment.id)
        yield from examined_rewards(run, environment)
        run.rewards(environment.name)
    if not run.environments:
        run.rewards()
    if (folder := _folder(run)) is not None:
        check_tools_of_environments(run, folder)
    if run.samples and run.runs_code:
        run.sandbox_choice  # noqa: B018 (choosing refuses one that is not available)


def _tasks(run: RunSession, splits: Sequence[str]) -> Iterator[Finding]:
    """Whether each environment has tasks, and enough for a step."""
    empty = False
    for name in splits if run.samples else ():
        there = Counter(task.environment for task in run.dataset.tasks(name))
        for environment in run.environments:
            if not there[environment.name]:
                empty = True
                whose = f" of the environment {environment.name!r}" if environment.name else ""
                yield failure(
                    ".".join(environment.at("data", name)),
                    f"the data{whose} has no tasks to {'train on' if name == 'train' else 'evaluate'}",
                    "add rows, or set evaluation.every=0" if name == "evaluation" else "add rows",
                )
    for environment in run.environments if run.trains and run.samples and run.config.evaluation.every else ():
        train, held_out = (getattr(environment.data, name, None) for name in ("train", "evaluation"))
        if held_out == GENERATED and train not in (None, GENERATED):
            yield warning(
                f"the tasks of evaluations are generated, and those of training are not: {', '.join(map(str, train))}. "
                f"Set {'.'.join(environment.at('data', 'evaluation'))} to held-out rows unless they are alike"
            )
    options = run.options("trainer") if run.trains and run.samples and not empty else None
    if not isinstance(options, TasksConfig):
        return
    wanted, there = options.tasks_per_step, Counter(task.environment for task in run.dataset.tasks("train"))
    if there.total() < wanted:
        fix = f"add data, or set trainer.tasks_per_step={there.total()}"
        reason = f"a step needs {wanted} different tasks: there are {there.total()} training tasks"
        yield failure("trainer.tasks_per_step", reason, fix)
        return
    tables = run.config.mixture
    steps = {0} | {step for table in tables if isinstance(table.weight, list) for step, _ in table.weight}
    for index, table in enumerate(tables):
        share = max(table.weight_at(step) / math.fsum(one.weight_at(step) for one in tables) for step in steps)
        if there[table.name] < (most := math.ceil(round(share * wanted, 9))):
            yield failure(
                f"environment.{index}.weight",
                f"a step needs up to {most} different tasks of the environment {table.name!r}: "
                f"there are {there[table.name]} training tasks",
                f"add data, or set a lower environment.{table.name}.weight or trainer.tasks_per_step",
            )


def _task_contents(run: RunSession, splits: Sequence[str]) -> Iterator[Finding]:
    """Whether rewards and engine can use the tasks."""
    if run.samples:
        for name in splits:
            _check_rewards(run, name)
        yield from check_images(run, splits)


def _check_rewards(run: RunSession, split: str) -> None:
    """Ask the rewards that need more than every task has."""
    for environment in run.environments:
        for index, reward in enumerate(run.rewards(environment.name)):
            if not isinstance(reward.function, ChecksTasks):
                continue
            tasks = [task for task in run.dataset.tasks(split) if task.environment == environment.name]
            try:
                asked(run.registry.named("reward", reward.id), reward.function.check_tasks, tasks)
            except DataError as error:
                where = error.where or run.resolved.origin((*environment.at("reward"), str(index), "id"))
                raise DataError(error.message, found=error.found, where=where, fix=error.fix) from None


def _missing_packages(run: RunSession) -> NotInstalledError | None:
    """The packages that the components need and that are missing, with one command that installs them."""
    config = run.config
    parts = [("engine", config.rollout.engine), ("sampler", config.sampler.id)]
    parts += [("reward", table.id) for table in config.reward if not table.servers]
    if not run.environments:
        parts += [("dataset", config.data["id"])]
    for environment in run.environments:
        parts += [("environment", environment.id)] if not environment.is_hosted else []
        parts += [("dataset", environment.data_id)]
        parts += [("reward", table.id) for table in environment.rewards if not table.servers]
    if config.sandbox.id != AUTO:
        parts.append(("sandbox", config.sandbox.id))
    if run.trains:
        parts += [("trainer", config.trainer.id), ("strategy", config.strategy.id)]
        parts += [("tracker", id) for id in config.trackers.use]
    missing: dict[str, str] = {}
    advice: dict[str, None] = {}
    for kind, id in parts:
        spec = run.registry.spec(kind, id)
        for need in spec.needs:
            choices = [choice.strip() for choice in need.split("|")]
            found = [flaw for choice in choices if (flaw := unmet_with_extras(choice))]
            if len(found) == len(choices):
                missing[choices[0]] = f"the {kind} {id!r} needs {choices[0]}: {found[0]}"
                advice |= {spec.advice: None} if spec.advice else {}
    if not missing:
        return None
    first, *rest = missing.values()
    return NotInstalledError(first, found="; ".join(rest) or None, fix="\n".join([pip_line(list(missing)), *advice]))


def _ids(run: RunSession) -> Iterator[Finding]:
    """Ids in component tables by convention: tools, chat format, parser, advantage, loss and observers."""
    names: list[tuple[str, object, KeyPath]] = []
    for environment in run.environments:
        options = environment.options
        if isinstance(options, ToolsConfig) and isinstance(options.tools, (list, tuple)):
            names += [("tool", id, environment.at("environment", "tools")) for id in options.tools]
    for kind in ("chat_format", "tool_parser"):
        names.append((kind, getattr(run.config.model, kind), ("model", kind)))
    algorithm = run.resolved.options.get("algorithm")
    for kind in ("advantage", "loss"):
        names.append((kind, getattr(algorithm, kind, None), ("algorithm", kind)))
    if run.trains:
        names += [("observer", id, ("observers", str(index))) for index, id in enumerate(run.config.observers)]
    for kind, id, path in names:
        if not isinstance(id, str) or id == "auto":
            continue
        try:
            _look_up(run, kind, id)
        except UserError as error:
            yield failure(".".join(path), str(error), value=repr(id), kind="not found")


def _look_up(run: RunSession, kind: str, id: str) -> None:
    """Check that an id is registered. Import paths are imported, because only an import shows whether they exist."""
    if kind == "observer":
        check_observer(run.registry, id)
    elif ":" not in id:
        run.registry.spec(kind, id)
    elif kind == "tool":
        tool_of(id)
    else:
        run.load(kind, id)
