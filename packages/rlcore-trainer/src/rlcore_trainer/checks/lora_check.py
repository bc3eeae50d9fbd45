"""Find conflicting adapter settings before anything loads. Does not import torch."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.checks import Finding, failure, failure_of, unread, warning
from rlcore.config.requirements import unmet
from rlcore.config.write import toml_value
from rlcore.errors import NotInstalledError, UserError
from rlcore.models.adapter import WEIGHTS, base_name, base_quantization, check_base, is_adapter, read_settings
from rlcore.models.folder import BUILTIN, local_base, local_folder
from rlcore.plugins.loading import pip_line
from rlcore_models.lora_config import ALL, LoraTable, lora_table
from rlcore_models.lora_names import layers_of_folder, wrong_names
from rlcore_models.quantization import check_installed

from rlcore_trainer.checks.resume_check import configuration_before
from rlcore_trainer.learner.critic_config import CriticConfig

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

PEFT = "peft>=0.21"


def check(run: RunSession, *, reinforcement: bool) -> Iterator[Finding]:
    """Find problems caused by ``[lora]``, or by a model that is an adapter.

    Raises:
        NotInstalledError: peft is not installed.
        UserError: the adapter to continue from belongs to another base, or is damaged.
    """
    lora, base = lora_table(run), _base(run)
    if base is not None and is_adapter(base):
        below = local_base(base) or base_name(base)
        fix = f"model.path={below} lora.adapter={base}, or rlcore merge {base} --out FOLDER"
        yield failure("model.path", "it is an adapter, but a run starts from a base model", fix)
        return
    if run.resume_from is not None:
        yield from _of_checkpoint(run.resume_from, base, run.config.model.quantization, lora)
        yield from _of_configuration(_before(run), lora)
    quantised = run.config.model.quantization
    if quantised != "none":
        if not lora.wanted:
            fix = "lora.rank=16, or model.quantization=none"
            yield failure("model.quantization", "a quantised base cannot be trained without an adapter", fix)
        else:
            check_installed(quantised)
    if not lora.wanted:
        reason, fix = "the run has no adapter: lora.rank is not set", "lora.rank=16, or remove it"
        yield from unread(run.resolved, "lora", type(lora).model_fields, reason, fix)
        return
    if flaw := unmet(PEFT):
        raise NotInstalledError(f"[lora] needs {PEFT}", found=flaw, fix=pip_line(["rlcore[lora]"]))
    yield from _of_engine(run)
    if reinforcement:
        yield from _of_reinforcement(run, lora)
    if lora.adapter is not None:
        yield from _of_start(lora, base)
    elif base is not None and (layers := layers_of_folder(base)) is not None:
        for key, name, fix in wrong_names(lora, layers):
            yield failure(f"lora.{key}", f"{base} has no layer with this name", fix, value=name)
    yield from map(warning, _notes(run, lora, base))


def _notes(run: RunSession, lora: LoraTable, base: Path | None) -> list[str]:
    if run.config.model.path.startswith(BUILTIN):
        return ["the base has random weights, which stay frozen: an adapter learns little on it, so train a base first"]
    if lora.adapter is None or base is None:
        return []
    folder, held = Path(lora.adapter).expanduser(), run.config.model.quantization
    told = []
    if not check_base(folder, base):
        told.append("the adapter does not record its base model, so the match with model.path is not verified")
    if (before := base_quantization(folder)) != held:
        told.append(f"the adapter was trained with model.quantization={before}, but this run uses {held}")
    return told


def _base(run: RunSession) -> Path | None:
    """Return the local model folder, or None. A missing folder is reported elsewhere."""
    try:
        return local_folder(run.config.model.path)
    except UserError:
        return None


def _of_checkpoint(checkpoint: Path, base: Path | None, quantised: str, lora: LoraTable) -> Iterator[Finding]:
    """Check that a resumed run keeps its adapter structure and the quantization of its base."""
    folder = checkpoint / "model"
    if not is_adapter(folder):
        if lora.wanted:
            key = "rank" if lora.rank is not None else "adapter"
            fix = f"remove it, or start a new run with model={checkpoint}"
            yield failure(f"lora.{key}", f"{checkpoint} was trained without an adapter", fix)
        return
    settings = read_settings(folder)
    if not lora.wanted:
        reason = f"{checkpoint} was trained with an adapter of rank {settings.get('r')}"
        fix = (
            f"lora.rank={settings.get('r')}, or rlcore merge {checkpoint} --out FOLDER and start a new run with "
            "model=FOLDER"
        )
        yield failure("lora.rank", reason, fix)
        return
    begin = f"start a new run with lora.adapter={folder}"
    for key, _, found in lora.differences(settings, made_here=lora.adapter is None):
        reason = f"the adapter of {checkpoint} has {found}"
        yield failure(f"lora.{key}", reason, f"lora.{key}={found}, or {begin}")
    if (before := base_quantization(folder)) != quantised:
        reason = f"{checkpoint} was trained with model.quantization={before}"
        yield failure("model.quantization", reason, f"model.quantization={before}, or {begin}")
    built = checkpoint.parent.parent / "model"
    if base is not None or built.is_dir():
        check_base(folder, base or built)


def _of_configuration(before: Mapping[str, Any] | None, lora: LoraTable) -> Iterator[Finding]:
    """Check what the adapter settings of the checkpoint do not record: the initial adapter and ``all-linear``."""
    if before is None or not lora.wanted:
        return
    began, targets = before.get("adapter"), before.get("targets", ALL)
    if lora.adapter != began and not _same_adapter(lora.adapter, began):
        reason = f"the run started from {began or 'a new adapter'}, and a resumed run cannot change this"
        fix = f"lora.adapter={began or 'null'}, or start a new run with lora.adapter={lora.adapter or 'FOLDER'}"
        yield failure("lora.adapter", reason, fix)
    if lora.adapter is None and began is None and lora.targets == ALL != targets:
        reason = f"the adapter of this run was trained with targets {targets}"
        yield failure("lora.targets", reason, f"lora.targets={toml_value(targets)}, or start a new run")


def _before(run: RunSession) -> Mapping[str, Any] | None:
    """Return the recorded ``[lora]`` table of a resumed run, or None."""
    assert run.resume_from is not None
    table = configuration_before(run.resume_from).get("lora")
    return {key: None if value == "null" else value for key, value in table.items()} if table is not None else None


def _same_adapter(asked: str | None, began: str | None) -> bool:
    """Return whether two folders hold the same weights. True if the initial folder no longer exists."""
    if asked is None or began is None:
        return False
    here, there = Path(asked).expanduser() / WEIGHTS, Path(began).expanduser() / WEIGHTS
    return not there.is_file() or (here.is_file() and filecmp.cmp(here, there, shallow=False))


def _of_engine(run: RunSession) -> Iterator[Finding]:
    if not run.config.has_environment:
        return
    for path, reason in run.engine_spec.unserved:
        table, _, key = path.partition(".")
        text = f"the engine {run.engine_spec.id} does not support it: {reason}"
        yield from unread(run.resolved, table, [key], text, f"rollout.engine=torch, or remove {path}")


def _of_reinforcement(run: RunSession, lora: LoraTable) -> Iterator[Finding]:
    if lora.dropout:
        reason = "reinforcement learning needs deterministic log-probabilities for its probability ratios"
        yield failure("lora.dropout", reason, "remove it")
    critic = run.resolved.options.get("critic")
    if isinstance(critic, CriticConfig) and critic.model == "copy":
        reason = "a copy of the policy needs memory for a second base model, all of whose weights are trained"
        fix = "critic.model=head, which uses the policy's layers, or a model folder"
        yield failure("critic.model", reason, fix)


def _of_start(lora: LoraTable, base: Path | None) -> Iterator[Finding]:
    assert lora.adapter is not None
    folder = Path(lora.adapter).expanduser()
    try:
        settings = read_settings(folder)
    except UserError as error:
        fix = "the folder of an adapter, such as RUN/checkpoints/best/model"
        yield failure("lora.adapter", failure_of(error).text, fix)
        return
    for key, _, found in lora.differences(settings):
        reason = f"the adapter in {folder} has {found}"
        yield failure(f"lora.{key}", reason, "remove it; the adapter's own value is used")
    if base is not None:
        check_base(folder, base)
