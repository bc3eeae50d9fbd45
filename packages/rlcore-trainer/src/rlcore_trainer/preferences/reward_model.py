"""A language model with a head that scores conversations, stored as a sequence classifier of transformers.

Axes: ``D`` the width of the model.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from rlcore.errors import UserError
from rlcore.models.config_file import context_tokens, read_config
from rlcore.models.reward_model import is_reward_model
from rlcore_models.cpu_linear import use_onednn
from rlcore_models.loading import load_model
from rlcore_models.sharded import is_sharded
from rlcore_models.streaming import kept_by_main, named_tensors
from torch import nn
from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, PreTrainedModel

from rlcore_trainer.batching.packing import pack
from rlcore_trainer.config import PairsConfig
from rlcore_trainer.policy.causal_lm import Trunk
from rlcore_trainer.policy.forward import Forward, PackedForward, PlainForward
from rlcore_trainer.policy.forward_probes import probes
from rlcore_trainer.policy.model import TOKENIZER_FILES, load_policy
from rlcore_trainer.policy.policy import Policy
from rlcore_trainer.policy.widened import computed_in_float32
from rlcore_trainer.preferences.data import Pair, read_pairs, scored
from rlcore_trainer.supervised.data import Examples

if TYPE_CHECKING:
    from rlcore.contracts import NamedTensor
    from rlcore.session.session import RunSession

TOLERANCE = 1e-3
"""Largest difference of states that rounding explains, as a share of the largest one."""


class RewardModel(Trunk):
    """A classifier with one label. Training and checkpoints use it like a policy, but it has no actions.

    Args:
        model: a sequence classifier
        folder: the folder with the tokenizer's files
        forward: how its layers compute micro-batches
    """

    adapter: Mapping[str, Any] | None = None

    def __init__(self, model: PreTrainedModel, folder: Path, *, forward: Forward) -> None:
        super().__init__(model, forward)
        self.folder, self.version = folder, 0
        head = model.get_submodule("score")
        assert isinstance(head, nn.Linear)
        self.root.value_head = head

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.module.dtype

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all parameters."""
        return self.module.parameters()

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor]:
        """Yield the live weights, see `rlcore.contracts.WeightSource`."""
        return named_tensors(self.module)

    def save(self, folder: Path) -> None:
        """Write a folder that ``AutoModelForSequenceClassification`` loads, see `Policy.save`."""
        values = None
        if is_sharded(self.module) and (values := kept_by_main(self.weights())) is None:
            return
        self.module.save_pretrained(folder, state_dict=values)
        for name in TOKENIZER_FILES:
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, folder / name)

    def description(self) -> Sequence[str]:
        """Return lines with the number of parameters, precision and device."""
        dtype = str(self.dtype).removeprefix("torch.")
        lines = [f"model     {self.module.num_parameters():,} parameters with a head, {dtype} on {self.device}"]
        note = self._forward.note
        return [*lines, note] if note else lines

    def recompute_activations(self) -> None:
        """Enable gradient checkpointing."""
        self.module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def load_reward_model(run: RunSession, folder: Path, *, device: torch.device, dropout: bool = False) -> Policy:
    """Load the reward model of a resumed run, or put a head of zeros on a language model or on that of a reward model.

    Raises:
        UserError: the folder cannot be used, or transformers has no sequence classifier of this architecture.
    """
    asked = run.config.model
    folder = run.resume_from / "model" if run.resume_from is not None else folder
    if is_reward_model(read_config(folder)):
        model = load_model(folder, dtype=asked.dtype, device=device, trained=True)
        model.requires_grad_(True)
        use_onednn(model)  # as `load_policy` does, so that a resumed run computes the same bits
    else:
        model = _with_head(load_policy(folder, dtype=asked.dtype, device=device), folder)
    return cast(Policy, RewardModel(model, folder, forward=_forward_of(model)))


@torch.no_grad()
def _forward_of(model: PreTrainedModel) -> Forward:
    """Return the packed forward pass if it computes the same states as the model does, and the plain one otherwise."""
    (batch,) = pack(probes(model, None), 1000, model.device)
    packed, plain = PackedForward(), PlainForward("forward   plain: computed with padding and without shared prompts")
    with computed_in_float32(model):
        expected_MD = plain.features(model, batch)
        try:
            with packed.computing(model):
                worst = (packed.features(model, batch) - expected_MD).abs().max() / expected_MD.abs().max()
        except Exception:  # an architecture may reject packed rows with any exception
            return plain
    return packed if float(worst) < TOLERANCE else plain


def _with_head(policy: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Return a classifier with the layers of a language model, and a head of zeros."""
    kinds: Any = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    kind = kinds.get(type(policy.config), None)
    if kind is None:
        raise UserError(
            "a reward model needs a language model of which transformers has a sequence classifier",
            found=type(policy).__name__,
            where=str(folder),
            fix="choose a text model, such as one of Qwen2.5, Qwen3 or Llama",
        )
    config: Any = policy.config  # shared with the layers, which read the kind of attention from it
    config.num_labels = 1
    if config.pad_token_id is None:  # transformers looks for the last token that is not padding
        eos = config.eos_token_id
        config.pad_token_id = eos[0] if isinstance(eos, list) else eos
    with torch.device("meta"):
        model = kind(config)
    setattr(model, model.base_model_prefix, policy.base_model)
    model.score = nn.Linear(model.score.in_features, 1, bias=False, dtype=policy.dtype, device=policy.device)
    nn.init.zeros_(model.score.weight)
    found: PreTrainedModel = model.train(False)
    return found


def scored_pairs(run: RunSession, config: PairsConfig, model: Policy) -> Examples[Pair]:
    """Read the pairs of a run for its reward model. Raises as `read_pairs`."""
    pairs = read_pairs(run, config, model.folder, context_tokens(model.folder))
    return replace(
        pairs,
        train=[_scored(pair) for pair in pairs.train],
        evaluation=[_scored(pair) for pair in pairs.evaluation],
    )


def _scored(pair: Pair) -> Pair:
    return replace(pair, chosen=scored(pair.chosen), rejected=scored(pair.rejected))
