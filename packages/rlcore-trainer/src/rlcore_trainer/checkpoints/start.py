"""The initial policy of a run: a full model, an adapter on a base model, or a policy of a control environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rlcore.models.folder import check_checksums
from rlcore.specs import EnvironmentSpec, PolicySpec
from rlcore_models.lora_config import lora_table
from rlcore_models.thread_teams import limit_threads

from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.forward import choose_forward
from rlcore_trainer.policy.model import load_policy
from rlcore_trainer.policy.policy import Policy
from rlcore_trainer.policy.vision import freeze_tower

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


def starting_policy(run: RunSession, folder: Path, *, device: torch.device, dropout: bool = False) -> Policy:
    """Load the policy from ``folder`` or the checkpoint of a resumed run, with the adapter configured in ``[lora]``.

    The environments of the run decide whether it is a language model or a control policy.

    With ``model.vision_tower = "frozen"``, the vision tower is not trained. An adapter never trains it.

    `rlcore_trainer.checks.lora_check` has already checked that the checkpoint matches ``[lora]``.

    Raises:
        UserError: as `load_policy` and `rlcore_models.lora.attach`.
    """
    table, asked = lora_table(run), run.config.model
    checkpoint = run.resume_from / "model" if run.resume_from is not None else None
    if (spec := policy_spec(run)) is not None:
        kind = run.registry.load("policy", spec.id)
        policy: Policy = kind.load(checkpoint or folder, dtype=asked.dtype, device=device)
        limit_threads(sum(parameter.numel() for parameter in policy.parameters()))
        return policy
    if not table.wanted:
        model = load_policy(checkpoint or folder, dtype=asked.dtype, device=device)
        if asked.vision_tower == "frozen":
            freeze_tower(model)
        return CausalLanguageModel(model, folder, forward=choose_forward(model, checkpoint or folder))
    from rlcore_models.lora import attach

    adapter = checkpoint
    if adapter is None and table.adapter is not None:
        adapter = Path(table.adapter).expanduser()
        check_checksums(adapter)
    based = CausalLanguageModel.load(folder, dtype=asked.dtype, device=device, quantization=asked.quantization)
    attach(based.module, table, base=folder, seed=run.config.seed, adapter=adapter, dropout=dropout)
    return based


def policy_spec(run: RunSession) -> PolicySpec | None:
    """Return the policy for environments without messages; None for chat environments.

    Raises:
        PluginError: no installed plugin has one.
    """
    specs = [run.registry.spec("environment", one.id) for one in run.resolved.environments]
    actions = {spec.action for spec in specs if isinstance(spec, EnvironmentSpec)}
    if len(actions) != 1 or actions == {"chat"}:
        return None
    (action,) = actions
    ids = (spec.id for spec in run.registry.specs("policy") if isinstance(spec, PolicySpec) and spec.action == action)
    spec = run.registry.spec("policy", next(ids, action))
    assert isinstance(spec, PolicySpec)
    return spec
