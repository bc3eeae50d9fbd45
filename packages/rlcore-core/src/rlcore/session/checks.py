"""Checks before heavy imports: installed packages, ids, files and rows. They take seconds."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from rlcore.abilities import ChecksTasks, ProcessesConfig, TasksConfig, ToolsConfig
from rlcore.config.messages import Problem, ProblemsError
from rlcore.config.origins import KeyPath
from rlcore.config.requirements import unmet_with_extras
from rlcore.config.resolve import Purpose
from rlcore.config.schema import AUTO
from rlcore.episodes.tool_environment import tool_of
from rlcore.errors import DataError, NotInstalledError, PluginError, UserError
from rlcore.models.folder import local_folder
from rlcore.plugin_calls import value_text
from rlcore.plugins.loading import load_attribute, pip_line
from rlcore.plugins.observers import check_observer
from rlcore.plugins.registry import asked
from rlcore.session.interpreters import check_interpreter
from rlcore.session.model_inputs import check_images, check_tools_of_environments
from rlcore.session.processes import one_of_several_asked, world_size
from rlcore.specs import EngineSpec, EnvironmentSpec, ExecutorSpec, RewardSpec, StrategySpec, TrainerSpec

if TYPE_CHECKING:
    from rlcore.config.environments import ResolvedEnvironment
    from rlcore.session.session import RunSession

TENSORBOARD = "tensorboard"
"""Id of the tracker that writes event files."""


def check_run(run: RunSession, *, split: str = "evaluation") -> list[str]:
    """Raise errors of the engine, tools, rewards, model folder and data rows as `UserError` before the run starts.

    Returns:
        Notes on valid but surprising settings, one sentence each.
    """
    purpose = run.plan.purpose
    _check_installed(run, purpose)
    _check_ids(run)
    engine = run.registry.spec("engine", run.config.rollout.engine)
    if purpose == "run" and isinstance(engine, EngineSpec) and not engine.trains:
        raise UserError(
            f"the engine {engine.id!r} does not sample from the weights of the trainer",
            where=run.resolved.origin(("rollout", "engine")),
            fix="use it with rlcore eval, or train with rollout.engine=torch",
        )
    folder = None
    if not (isinstance(engine, EngineSpec) and engine.speaks == "messages"):
        folder = local_folder(run.config.model.path, where=run.resolved.origin(("model", "path")))
    notes: list[str] = []
    for environment in run.environments:
        notes += _check_environment(run, environment)
        if environment.python is None:
            run.load("environment", environment.id)
        else:
            notes.append(check_interpreter(run, environment))
        run.rewards(environment.name)
    if not run.environments:
        run.rewards()
    if folder is not None:
        check_tools_of_environments(run, folder)
    trainer = run.registry.spec("trainer", run.config.trainer.id) if purpose == "run" else None
    if not isinstance(trainer, TrainerSpec) or trainer.needs_environment:
        if run.runs_code:
            _check_sandbox(run)
        notes += check_images(run, _check_tasks(run, purpose, split))
    if isinstance(trainer, TrainerSpec):
        _check_quantization(run, trainer)
        if trainer.check:
            notes += _notes(run, "trainer", trainer.id, trainer.check)
    if purpose == "run":
        notes += _check_processes(run)
        notes += _without_event_files(run)
    return notes


def _without_event_files(run: RunSession) -> list[str]:
    """A note for the layout ``stamped`` when no tracker writes its folder ``tensorboard/``."""
    use = run.config.trackers.use
    if run.config.layout != "stamped" or TENSORBOARD in use:
        return []
    needs = run.registry.spec("tracker", TENSORBOARD).needs
    missing = [need for need in needs if unmet_with_extras(need)]
    install = f", after {pip_line(missing)}" if missing else ""
    asked = ", ".join(repr(id) for id in (*use, TENSORBOARD))
    return [f'no event files for TensorBoard are written; to enable them, set trackers.use="[{asked}]"{install}']


def _check_environment(run: RunSession, one: ResolvedEnvironment) -> list[str]:
    """Reject an environment with actions that the executor cannot run or observations that the engine cannot read.

    Returns:
        The notes of its own check and of those of its rewards.
    """
    config = run.config
    environment = run.registry.spec("environment", one.id)
    executor = run.registry.spec("executor", config.executor.id)
    engine = run.registry.spec("engine", config.rollout.engine)
    assert isinstance(environment, EnvironmentSpec)
    if isinstance(executor, ExecutorSpec) and environment.action not in executor.actions:
        raise UserError(
            f"the executor {executor.id!r} cannot run the environment {environment.id!r}",
            found=f"its actions are {environment.action}; the executor runs {_listed(executor.actions)}",
            where=run.resolved.origin(("executor", "id")),
            fix="set executor.id to another executor; rlcore plugins list shows them",
        )
    if isinstance(engine, EngineSpec) and (unread := environment.modalities - engine.modalities):
        raise UserError(
            f"the engine {engine.id!r} cannot read the observations of the environment {environment.id!r}",
            found=f"{_listed(unread)}; the engine reads {_listed(engine.modalities)}",
            where=run.resolved.origin(("rollout", "engine")),
            fix="set rollout.engine to another engine; rlcore plugins list shows them",
        )
    notes = _notes(run, "environment", one.id, environment.check, one) if environment.check else []
    for index, table in enumerate(one.rewards):
        reward = run.registry.spec("reward", table.id)
        if isinstance(reward, RewardSpec) and reward.check:
            notes += _notes(run, "reward", table.id, reward.check, one, index)
    return notes


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _check_sandbox(run: RunSession) -> None:
    """Reject a sandbox that is not available, and a time limit that ends the turn before the cell."""
    cell_s, step_s = run.config.sandbox.cell_s, run.config.rollout.environment_timeout_s
    if cell_s >= step_s:
        raise UserError(
            "sandbox.cell_s must be less than rollout.environment_timeout_s, which otherwise ends the whole trajectory",
            found=f"{cell_s:g} s for a cell, {step_s:g} s for a step",
            where=run.resolved.origin(("sandbox", "cell_s")),
            fix=f"rollout.environment_timeout_s={2 * cell_s:g}",
        )
    run.sandbox_choice  # noqa: B018 (choosing refuses one that is not available)


def _check_quantization(run: RunSession, trainer: TrainerSpec) -> None:
    if run.config.model.quantization == "none" or trainer.quantizes:
        return
    others = [spec.id for spec in run.registry.specs("trainer") if isinstance(spec, TrainerSpec) and spec.quantizes]
    raise UserError(
        f"the trainer {trainer.id!r} does not support model.quantization",
        found=f"model.quantization={run.config.model.quantization}",
        where=run.resolved.origin(("model", "quantization")),
        fix=" or ".join(["model.quantization=none", *(f"trainer.id={id}" for id in others)]),
    )


def _check_processes(run: RunSession) -> list[str]:
    spec = run.registry.spec("strategy", run.config.strategy.id)
    assert isinstance(spec, StrategySpec)
    if spec.launch is None and world_size() > 1:
        raise UserError(
            f"the strategy {spec.id!r} supports one process; each of several processes would train a separate run",
            found=f"WORLD_SIZE={world_size()}, which torchrun and accelerate launch set",
            where=run.resolved.origin(("strategy", "id")),
            fix="strategy.id=ddp, or start rlcore run without a launcher",
        )
    options = run.options("strategy")
    told = isinstance(options, ProcessesConfig) and options.processes is not None
    if one_of_several_asked() and not told:
        raise UserError(
            "accelerate launch was asked for several processes, but this process would train alone",
            found="no WORLD_SIZE: without several GPUs, accelerate starts one process, or unconnected ones with mpirun",
            fix="run without a launcher: rlcore run … strategy.id=ddp strategy.processes=2 starts the processes",
        )
    return _notes(run, "strategy", spec.id, spec.check) if spec.check else []


def _notes(run: RunSession, kind: str, id: str, check: str, *arguments: object) -> list[str]:
    """The notes of a component's own check."""
    what = f"the check of {run.registry.named(kind, id)}"
    notes = asked(what, load_attribute(check, what=what), run, *arguments)
    if notes is None:
        return []
    if not isinstance(notes, (list, tuple)) or not all(isinstance(note, str) for note in notes):
        raise PluginError(f"{what} must return a list of sentences", found=value_text(notes), fix=f"edit {check}")
    return list(notes)


def _check_tasks(run: RunSession, purpose: Purpose, split: str) -> list[str]:
    """The splits that the run uses."""
    splits = [split] if purpose == "evaluation" else ["train"]
    if purpose == "run" and run.config.evaluation.every:
        splits.append("evaluation")
    for name in splits:
        there = Counter(task.environment for task in run.dataset.tasks(name))
        for environment in run.environments:
            if not there[environment.name]:
                fix = "add rows, or set evaluation.every=0" if name == "evaluation" else "add rows"
                whose = f" of the environment {environment.name!r}" if environment.name else ""
                raise DataError(
                    f"the data{whose} has no tasks to {'train on' if name == 'train' else 'evaluate'}",
                    where=run.resolved.origin(environment.at("data", name)),
                    fix=fix,
                )
        _check_rewards(run, name)
    if purpose == "run":
        _check_step(run)
    return splits


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


def _check_step(run: RunSession) -> None:
    options, there = run.options("trainer"), len(run.dataset.tasks("train"))
    if isinstance(options, TasksConfig) and there < (wanted := options.tasks_per_step):
        raise DataError(
            f"a step needs {wanted} different tasks",
            found=f"{there} training tasks",
            where=run.resolved.origin(("trainer", "tasks_per_step")),
            fix=f"add data, or set trainer.tasks_per_step={there}",
        )
    if isinstance(options, TasksConfig):
        _check_shares(run, options.tasks_per_step)


def _check_shares(run: RunSession, per_step: int) -> None:
    """Check that each of several environments has enough tasks for its largest share of a step."""
    tables = run.config.mixture
    there = Counter(task.environment for task in run.dataset.tasks("train"))
    steps = {0} | {step for table in tables if isinstance(table.weight, list) for step, _ in table.weight}
    for index, table in enumerate(tables):
        share = max(table.weight_at(step) / math.fsum(one.weight_at(step) for one in tables) for step in steps)
        if there[table.name] < (wanted := math.ceil(round(share * per_step, 9))):
            raise DataError(
                f"a step needs up to {wanted} different tasks of the environment {table.name!r}",
                found=f"{there[table.name]} training tasks",
                where=run.resolved.origin(("environment", str(index), "weight")),
                fix=f"add data, or set a lower environment.{table.name}.weight or trainer.tasks_per_step",
            )


def _check_installed(run: RunSession, purpose: Purpose) -> None:
    config = run.config
    parts = [("engine", config.rollout.engine), ("executor", config.executor.id)]
    parts += [("reward", table.id) for table in config.reward]
    if not run.environments:
        parts += [("dataset", config.data["id"])]
    for environment in run.environments:
        parts += [("environment", environment.id)] if environment.python is None else []
        parts += [("dataset", environment.data_id)]
        parts += [("reward", table.id) for table in environment.rewards]
    if config.sandbox.id != AUTO:
        parts.append(("sandbox", config.sandbox.id))
    if purpose == "run":
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
    if missing:
        first, *rest = missing.values()
        raise NotInstalledError(first, found="; ".join(rest) or None, fix="\n".join([pip_line(list(missing)), *advice]))


def _check_ids(run: RunSession) -> None:
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
    if run.plan.purpose == "run":
        names += [("observer", id, ("observers", str(index))) for index, id in enumerate(run.config.observers)]
    problems = []
    for kind, id, path in names:
        if not isinstance(id, str) or id == "auto":
            continue
        try:
            _look_up(run, kind, id)
        except UserError as error:
            origin = run.resolved.origin(path)
            key = ".".join(path)
            problems.append(Problem(kind="not found", path=key, value=repr(id), origin=origin, reason=str(error)))
    if problems:
        raise ProblemsError(problems)


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
