"""What contradicts itself about an adapter, found before anything loads. Imports no torch."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.adapter_folder import WEIGHTS, base_name, base_quantization, check_base, is_adapter, read_settings
from rlcore.config.messages import Problem
from rlcore.config.requirements import unmet
from rlcore.config.write import toml_value
from rlcore.errors import NotInstalledError, UserError
from rlcore.model_folder import BUILTIN, local_base, local_folder
from rlcore.quantization import check_installed
from rlcore.specs import EngineSpec

from rlcore_trainer.lora_config import ALL, LoraTable, lora_table
from rlcore_trainer.lora_names import layers_of_folder, wrong_names
from rlcore_trainer.resume_check import configuration_before

if TYPE_CHECKING:
    from rlcore.run import Run

PEFT = "peft>=0.21"


def problems(run: Run, *, reinforcement: bool) -> Iterator[Problem]:
    """What a run would end with later because of ``[lora]``, or because its model is an adapter.

    Raises:
        NotInstalledError: peft is not there.
        UserError: the adapter to go on from belongs to another base, or is damaged.
    """
    lora = lora_table(run)

    def problem(path: str, value: Any, reason: str, mend: str) -> Problem:
        origin = run.resolved.origin(tuple(path.split(".")))
        return Problem(kind="bad value", path=path, value=str(value), origin=origin, reason=f"{reason}\nfix: {mend}")

    base = _base(run)
    if base is not None and is_adapter(base):
        below = local_base(base) or base_name(base)
        mend = f"model.path={below} lora.adapter={base}, or rlcore merge {base} --out FOLDER"
        yield problem("model.path", run.config.model.path, "it is an adapter: a run starts from its base", mend)
        return
    if run.resume_from is not None:
        yield from _of_checkpoint(run.resume_from, base, run.config.model.quantization, lora, problem)
        yield from _of_configuration(_before(run), lora, problem)
    quantised = run.config.model.quantization
    if quantised != "none":
        if not lora.wanted:
            mend = "lora.rank=16, or model.quantization=none"
            yield problem("model.quantization", quantised, "a quantised base is not trained itself", mend)
        else:
            check_installed(quantised)
    if not lora.wanted:
        for key, value in lora:
            if value != type(lora).model_fields[key].get_default():
                mend = "lora.rank=16, or leave it out"
                yield problem(f"lora.{key}", value, "there is no adapter: lora.rank is not set", mend)
        return
    if flaw := unmet(PEFT):
        raise NotInstalledError(f"[lora] needs {PEFT}", found=flaw, mend="pip install 'rlcore[lora]'")
    yield from _of_engine(run, lora, problem)
    if reinforcement:
        yield from _of_reinforcement(run, lora, problem)
    if lora.adapter is not None:
        yield from _of_start(lora, base, problem)
    elif base is not None and (layers := layers_of_folder(base)) is not None:
        for key, name, mend in wrong_names(lora, layers):
            yield problem(f"lora.{key}", name, f"no layer of {base} is called so", mend)


def notes(run: Run) -> list[str]:
    """What is allowed and may surprise, one sentence each."""
    lora, base = lora_table(run), _base(run)
    if lora.wanted and run.config.model.path.startswith(BUILTIN):
        return ["the base is made of random numbers and stays so: an adapter learns little on it, train a base first"]
    if lora.adapter is None or base is None:
        return []
    folder, held = Path(lora.adapter).expanduser(), run.config.model.quantization
    told = []
    if not check_base(folder, base):
        told.append("the adapter does not say which base it was trained on: that it is this one is not checked")
    if (before := base_quantization(folder)) != held:
        told.append(f"the adapter was trained on a base with model.quantization={before}; here it is {held}")
    return told


def _base(run: Run) -> Path | None:
    """The model's folder where it is on this machine; one that is not there has been told of by then."""
    try:
        return local_folder(run.config.model.path)
    except UserError:
        return None


def _of_checkpoint(
    checkpoint: Path, base: Path | None, quantised: str, lora: LoraTable, problem: Any
) -> Iterator[Problem]:
    """A run goes on with what it has trained until now: an adapter of the same form on a base held as it was."""
    folder = checkpoint / "model"
    if not is_adapter(folder):
        if lora.wanted:
            key = "rank" if lora.rank is not None else "adapter"
            mend = f"leave it out, or a new run with model={checkpoint}"
            yield problem(f"lora.{key}", getattr(lora, key), f"all weights were trained until {checkpoint}", mend)
        return
    settings = read_settings(folder)
    if not lora.wanted:
        reason = f"an adapter of rank {settings.get('r')} was trained until {checkpoint}"
        mend = (
            f"lora.rank={settings.get('r')}, or rlcore merge {checkpoint} --out FOLDER and a new run with model=FOLDER"
        )
        yield problem("lora.rank", lora.rank, reason, mend)
        return
    begin = f"a new run with lora.adapter={folder}"
    for key, asked, found in lora.differences(settings, made_here=lora.adapter is None):
        reason = f"the adapter that was trained until {checkpoint} has {found}"
        yield problem(f"lora.{key}", asked, reason, f"lora.{key}={found}, or {begin}, which brings its own")
    if (before := base_quantization(folder)) != quantised:
        reason = f"the base was held with model.quantization={before} until {checkpoint}"
        yield problem("model.quantization", quantised, reason, f"model.quantization={before}, or {begin}")
    built = checkpoint.parent.parent / "model"
    if base is not None or built.is_dir():
        check_base(folder, base or built)


def _of_configuration(before: Mapping[str, Any] | None, lora: LoraTable, problem: Any) -> Iterator[Problem]:
    """What the checkpoint's own settings do not tell: where the adapter came from, and which layers all were."""
    if before is None or not lora.wanted:
        return
    began, targets = before.get("adapter"), before.get("targets", ALL)
    if lora.adapter != began and not _same_adapter(lora.adapter, began):
        reason = f"the run started from {began or 'a new adapter'}, and goes on with what became of that"
        mend = f"lora.adapter={began or 'null'}, or a new run with lora.adapter={lora.adapter or 'FOLDER'}"
        yield problem("lora.adapter", lora.adapter, reason, mend)
    if lora.adapter is None and began is None and lora.targets == ALL != targets:
        reason = f"the adapter that was trained until now stands on {targets}"
        yield problem("lora.targets", lora.targets, reason, f"lora.targets={toml_value(targets)}, or a new run")


def _before(run: Run) -> Mapping[str, Any] | None:
    """The table ``[lora]`` that a run was left with; None where nothing says it."""
    assert run.resume_from is not None
    table = configuration_before(run.resume_from).get("lora")
    return {key: None if value == "null" else value for key, value in table.items()} if table is not None else None


def _same_adapter(asked: str | None, began: str | None) -> bool:
    """Whether two folders hold the same weights, or the one that was begun with is gone: nobody can tell then."""
    if asked is None or began is None:
        return False
    here, there = Path(asked).expanduser() / WEIGHTS, Path(began).expanduser() / WEIGHTS
    return not there.is_file() or (here.is_file() and filecmp.cmp(here, there, shallow=False))


def _of_engine(run: Run, lora: LoraTable, problem: Any) -> Iterator[Problem]:
    if not run.config.environment.id:
        return
    engine = run.registry.spec("engine", run.config.rollout.engine)
    for path, reason in engine.unserved if isinstance(engine, EngineSpec) else ():
        table, _, key = path.partition(".")
        holder = lora if table == "lora" else getattr(run.config, table)
        value = getattr(holder, key)
        if value != type(holder).model_fields[key].get_default():
            mend = f"rollout.engine=torch, or leave {path} out"
            yield problem(path, value, f"the engine {engine.id} cannot serve it: {reason}", mend)


def _of_reinforcement(run: Run, lora: LoraTable, problem: Any) -> Iterator[Problem]:
    if lora.dropout:
        reason = "dropout would make the log-probabilities that ratios are made of random"
        yield problem("lora.dropout", lora.dropout, reason, "leave it out: there is none in reinforcement learning")
    if getattr(run.resolved.options.get("critic"), "model", None) == "copy":
        reason = "a copy of the policy would be a second base in memory, and all of it would be trained"
        mend = "critic.model=head, which learns on the policy's own layers, or the folder of a model"
        yield problem("critic.model", "copy", reason, mend)


def _of_start(lora: LoraTable, base: Path | None, problem: Any) -> Iterator[Problem]:
    assert lora.adapter is not None
    folder = Path(lora.adapter).expanduser()
    try:
        settings = read_settings(folder)
    except UserError as error:
        reason = error.message if error.found is None else f"{error.message}: {error.found}"
        yield problem(
            "lora.adapter", lora.adapter, reason, "the folder of an adapter, such as RUN/checkpoints/best/model"
        )
        return
    for key, asked, found in lora.differences(settings):
        reason = f"the adapter in {folder} has {found}"
        yield problem(f"lora.{key}", asked, reason, "leave it out: the adapter brings its own")
    if base is not None:
        check_base(folder, base)
