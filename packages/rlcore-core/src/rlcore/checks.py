"""What is looked at before anything heavy loads: installed parts, ids, files, rows. All in seconds, all in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.config.messages import Problem, ProblemsError
from rlcore.config.origins import KeyPath
from rlcore.config.requirements import unmet_with_extras
from rlcore.config.resolve import Purpose
from rlcore.errors import DataError, NotInstalledError, UserError
from rlcore.loading import load_attribute, pip_line
from rlcore.model_folder import local_folder
from rlcore.processes import one_of_several_asked, world_size
from rlcore.specs import EngineSpec, StrategySpec, TrainerSpec
from rlcore.tool_environment import tool_of

if TYPE_CHECKING:
    from rlcore.run import Run

TENSORBOARD = "tensorboard"
"""Id of the tracker that writes event files."""


def check_run(run: Run, *, purpose: Purpose = "run", split: str = "evaluation") -> list[str]:
    """Raise the `UserError` that a run would end with later: engine, tools, rewards, model folder, rows of data.

    Returns:
        What is allowed and may surprise, one sentence each.
    """
    _check_installed(run, purpose)
    _check_ids(run)
    engine = run.registry.spec("engine", run.config.rollout.engine)
    if purpose == "run" and isinstance(engine, EngineSpec) and not engine.trains:
        raise UserError(
            f"the engine {engine.id!r} does not sample from the weights that are trained",
            where=run.resolved.origin(("rollout", "engine")),
            mend="use it with rlcore eval, or train with rollout.engine=torch",
        )
    if not (isinstance(engine, EngineSpec) and engine.speaks == "messages"):
        local_folder(run.config.model.path, where=run.resolved.origin(("model", "path")))
    if run.config.environment.id:
        run.load("environment", run.config.environment.id)
    _ = run.rewards
    trainer = run.registry.spec("trainer", run.config.trainer.id) if purpose == "run" else None
    if not isinstance(trainer, TrainerSpec) or trainer.needs_environment:
        _check_tasks(run, purpose, split)
    notes: list[str] = []
    if isinstance(trainer, TrainerSpec):
        _check_quantization(run, trainer)
        if trainer.check:
            notes += load_attribute(trainer.check)(run)
    if purpose == "run":
        notes += _check_processes(run)
        notes += _without_event_files(run)
    return notes


def _without_event_files(run: Run) -> list[str]:
    """What stands in the place of ``tensorboard/``, which people look for in a directory of the layout ``stamped``."""
    use = run.config.trackers.use
    if run.config.layout != "stamped" or TENSORBOARD in use:
        return []
    needs = run.registry.spec("tracker", TENSORBOARD).needs
    missing = [need for need in needs if unmet_with_extras(need)]
    install = f", after {pip_line(missing)}" if missing else ""
    asked = ", ".join(repr(id) for id in (*use, TENSORBOARD))
    return [f'nothing is written for TensorBoard: trackers.use="[{asked}]" does it{install}']


def _check_quantization(run: Run, trainer: TrainerSpec) -> None:
    if run.config.model.quantization == "none" or trainer.quantizes:
        return
    others = [spec.id for spec in run.registry.specs("trainer") if isinstance(spec, TrainerSpec) and spec.quantizes]
    raise UserError(
        f"the trainer {trainer.id!r} does not say that it quantises: the model would be held whole",
        found=f"model.quantization={run.config.model.quantization}",
        where=run.resolved.origin(("model", "quantization")),
        mend=" or ".join(["model.quantization=none", *(f"trainer.id={id}" for id in others)]),
    )


def _check_processes(run: Run) -> list[str]:
    spec = run.registry.spec("strategy", run.config.strategy.id)
    assert isinstance(spec, StrategySpec)
    if spec.launch is None and world_size() > 1:
        raise UserError(
            f"the strategy {spec.id!r} trains in one process: each of several would train a run of its own",
            found=f"WORLD_SIZE={world_size()}, as torchrun or accelerate launch sets it",
            where=run.resolved.origin(("strategy", "id")),
            mend="strategy.id=ddp, or start rlcore run without a launcher",
        )
    if one_of_several_asked() and getattr(run.options("strategy"), "processes", None) is None:
        raise UserError(
            "accelerate launch was asked for several processes, and this one would train alone",
            found="no WORLD_SIZE: without several GPUs accelerate starts one process, or as many strangers by mpirun",
            mend="rlcore run … strategy.id=ddp strategy.processes=2 starts them itself, without a launcher",
        )
    return list(load_attribute(spec.check)(run) or ()) if spec.check else []


def _check_tasks(run: Run, purpose: Purpose, split: str) -> None:
    splits = [split] if purpose == "evaluation" else ["train"]
    if purpose == "run" and run.config.evaluation.every:
        splits.append("evaluation")
    for name in splits:
        if not run.dataset.tasks(name):
            mend = "give it rows, or set evaluation.every=0" if name == "evaluation" else "give it rows"
            raise DataError(
                f"the data has no tasks to {'train on' if name == 'train' else 'evaluate'}",
                where=run.resolved.origin(("data", name)),
                mend=mend,
            )
    if purpose == "run":
        _check_step(run)


def _check_step(run: Run) -> None:
    """A trainer that takes so many different tasks a step says so in ``tasks_per_step``, by convention."""
    wanted, there = getattr(run.options("trainer"), "tasks_per_step", None), len(run.dataset.tasks("train"))
    if isinstance(wanted, int) and there < wanted:
        raise DataError(
            f"a step takes {wanted} different tasks",
            found=f"{there} training tasks",
            where=run.resolved.origin(("trainer", "tasks_per_step")),
            mend=f"add data, or set trainer.tasks_per_step={there}",
        )


def _check_installed(run: Run, purpose: Purpose) -> None:
    config = run.config
    parts = [("engine", config.rollout.engine), ("executor", config.executor.id)]
    parts += [("environment", config.environment.id)] if config.environment.id else []
    parts += [("reward", table.id) for table in config.reward]
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
        raise NotInstalledError(
            first, found="; ".join(rest) or None, mend="\n         ".join([pip_line(list(missing)), *advice])
        )


def _check_ids(run: Run) -> None:
    """Ids that stand in component tables by convention: tools, chat format, parser, advantage and loss."""
    environment = run.options("environment")
    tools = getattr(environment, "tools", ())
    names: list[tuple[str, object, KeyPath]] = []
    if isinstance(tools, (list, tuple)):
        names += [("tool", id, ("environment", "tools")) for id in tools]
    for kind in ("chat_format", "tool_parser"):
        names.append((kind, getattr(run.config.model, kind), ("model", kind)))
    algorithm = run.resolved.options.get("algorithm")
    for kind in ("advantage", "loss"):
        names.append((kind, getattr(algorithm, kind, None), ("algorithm", kind)))
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


def _look_up(run: Run, kind: str, id: str) -> None:
    """An id has to be offered; what is named by its import path is imported, as only that tells whether it is there."""
    if ":" not in id:
        run.registry.spec(kind, id)
    elif kind == "tool":
        tool_of(id)
    else:
        run.load(kind, id)
