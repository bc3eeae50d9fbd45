"""A causal language model or a vision-language model as a policy."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from rlcore.contracts import NamedTensor
from rlcore.images.fitting import SETTINGS
from rlcore.types import Prompt
from rlcore_models.lora import (
    PREFIX,
    adapter_parameters,
    description,
    has_adapter,
    read_values,
    save_adapter,
    settings_of,
    values_of,
)
from rlcore_models.sharded import is_sharded, whole
from rlcore_models.streaming import kept_by_main, named, named_tensors
from rlcore_models.vision_encoder import is_vision_language
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlcore_trainer.batching.packing import MicroBatch
from rlcore_trainer.policy.forward import Forward, PackedForward, choose_forward
from rlcore_trainer.policy.logprobs import LossOfChunk, LossOfOutput, Output
from rlcore_trainer.policy.model import TOKENIZER_FILES, load_policy, load_second, output_head
from rlcore_trainer.policy.perturbed_weights import parts_of, perturbed_weights
from rlcore_trainer.policy.policy import Found, PolicyLoss, Reference
from rlcore_trainer.policy.precision import precision_hint
from rlcore_trainer.policy.references import AdapterReference, FrozenReference
from rlcore_trainer.policy.root import RootModule
from rlcore_trainer.policy.vision import description as vision_description
from rlcore_trainer.policy.vision import freeze_tower, image_inputs, is_tower_frozen
from rlcore_trainer.policy.widened import computed_in_float32


class Trunk:
    """The layers of a language model below its output layer."""

    def __init__(self, model: PreTrainedModel, forward: Forward) -> None:
        self._model, self._forward = model, forward
        self._root = RootModule(model)

    @property
    def module(self) -> PreTrainedModel:
        """The transformers model."""
        return self._model

    @property
    def root(self) -> RootModule[PreTrainedModel]:
        """The module in whose forward pass micro-batches are computed."""
        return self._root

    @property
    def device(self) -> torch.device:
        """The device on which micro-batches must be."""
        return self._model.device

    @property
    def width(self) -> int:
        """The size of a hidden state."""
        return int(self._model.config.get_text_config().hidden_size)

    def train(self, mode: bool = True) -> None:
        """Enable or disable dropout."""
        self._model.train(mode)

    def computing(self) -> AbstractContextManager[None]:
        """Return a context manager in which the model computes micro-batches."""
        return self._forward.computing(self._model)

    def values(self, batch: MicroBatch, *, trains_model: bool = True) -> Tensor:
        """Return the values of the head for the states before the trained tokens; see `RootModule.values`."""
        return self._root.values(partial(self._forward.features, self._model), batch, trains_model=trains_model)


class CausalLanguageModel(Trunk):
    """A `rlcore_trainer.policy.policy.TokenPolicy` for a transformers model, with or without an adapter.

    Args:
        model: a causal language model, as loaded by `rlcore_trainer.policy.model.load_policy`
        folder: the folder that the model was loaded from, with the tokenizer's files
        version: number of updates applied to the weights
        forward: how the model computes micro-batches, see `rlcore_trainer.policy.forward.choose_forward`
    """

    def __init__(
        self, model: PreTrainedModel, folder: Path = Path(), version: int = 0, *, forward: Forward | None = None
    ) -> None:
        super().__init__(model, forward or PackedForward())
        self._folder, self.version = folder, version

    @classmethod
    def load(cls, folder: Path, *, dtype: str, device: torch.device, quantization: str = "none") -> Self:
        """Load the model of a folder. Raises the errors of `load_policy` and `choose_forward`."""
        model = load_policy(folder, dtype=dtype, device=device, quantization=quantization)
        return cls(model, folder, forward=choose_forward(model, folder))

    @property
    def folder(self) -> Path:
        """The Hugging Face folder that the model was loaded from."""
        return self._folder

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self._model.dtype

    @property
    def vocabulary(self) -> int:
        """The number of tokens with an embedding."""
        weight_VD = self._model.get_input_embeddings().weight  # peft wraps the layer to train it as a whole
        assert isinstance(weight_VD, Tensor)
        return len(weight_VD)

    @property
    def max_length(self) -> int | None:
        """The maximum sequence length; None if the model does not specify one."""
        positions = self._model.config.get_text_config().to_dict().get("max_position_embeddings")
        return int(positions) if positions else None

    @property
    def sees_images(self) -> bool:
        """Whether it is a vision-language model with an image processor."""
        return is_vision_language(self._model) and (self._folder / SETTINGS).is_file()

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all parameters, trained or frozen."""
        return self._model.parameters()

    @property
    def adapter(self) -> Mapping[str, Any] | None:
        """Peft's settings of the adapter; None without one."""
        return settings_of(self._model)

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor]:
        """Yield the live weights, see `rlcore.contracts.WeightSource`."""
        if not adapter_only:
            return named_tensors(self._model)
        return (named(PREFIX + name, whole(one.detach())) for name, one in adapter_parameters(self._model).items())

    def evaluate(self, batch: MicroBatch, *, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy in nats of every trained token, ``(logprobs_M, entropy_M)``."""
        logprobs_M, entropy_M = self._root(self._forward.evaluate, self._model, batch, temperature)
        return logprobs_M, entropy_M

    def loss(
        self,
        batch: MicroBatch,
        loss_of_chunk: LossOfChunk,
        *,
        temperature: float = 1.0,
        entropy: bool = True,
        token_wise: bool = True,
        loss_of_output: LossOfOutput | None = None,
    ) -> PolicyLoss:
        """Compute the loss; see `rlcore_trainer.policy.policy.DistilledPolicy`."""

        def compute() -> PolicyLoss:
            loss, metrics, hidden_MD = self._forward.loss(
                self._model, batch, loss_of_chunk, temperature=temperature, entropy=entropy, token_wise=token_wise
            )
            if loss_of_output is not None:
                term, of_term = loss_of_output(Output(hidden_MD, output_head(self._model)))
                loss, metrics = loss + term, [*metrics, of_term]
            return PolicyLoss(loss, metrics, self._root.values_of(hidden_MD))

        found: PolicyLoss = self._root(compute)
        return found

    @property
    def has_output(self) -> bool:
        """Whether the logits are the product of hidden states and output layer."""
        return isinstance(self._forward, PackedForward)

    def of_output(self, batch: MicroBatch, function: Callable[[Output], Found]) -> Found:
        """Call a function with the output of a micro-batch; see `rlcore_trainer.policy.policy.DistilledPolicy`."""

        def compute() -> Found:
            return function(Output(self._forward.features(self._model, batch), output_head(self._model)))

        found: Found = self._root(compute)
        return found

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder with weights, configurations and unchanged copies of the tokenizer's files.

        If the model has an adapter, write only the adapter. If the processes hold parts of the weights, all of them
        call this, and the main process writes.
        """
        adapted, values = has_adapter(self._model), None
        if is_sharded(self._model) and (values := kept_by_main(self.weights(adapter_only=adapted))) is None:
            return
        if adapted:
            save_adapter(self._model, folder, values)
        else:
            self._model.save_pretrained(folder, state_dict=values)
        for name in TOKENIZER_FILES:
            if (self._folder / name).is_file():
                shutil.copyfile(self._folder / name, folder / name)

    def description(self) -> Sequence[str]:
        """Return lines with parameters, precision and device, vision tower, adapter, and notes about speed."""
        parameters = self._model.num_parameters()  # a quantised model reports its count before quantisation
        dtype = str(self.dtype).removeprefix("torch.")
        lines = [f"policy    {parameters:,} parameters, {dtype} on {self.device}"]
        lines += [hint] if (hint := precision_hint(parameters, self.dtype, self.device)) else []
        lines += [line] if (line := vision_description(self._model)) else []
        lines += [f"adapter   {description(self._model)}"] if has_adapter(self._model) else []
        return [*lines, self._forward.note] if self._forward.note else lines

    def recompute_activations(self) -> None:
        """Enable gradient checkpointing."""
        _recompute_activations(self._model)

    def reference(self, *, moved: bool) -> Reference:
        """Return a frozen copy, or with an adapter a state of the same module, to keep only one base in memory.

        On a CPU, a policy that has not moved is loaded again instead: the system maps the file, which takes no memory
        of its own as long as nothing is written to the tensors. A policy whose parts are held by processes is loaded
        again, too, because only divided weights can be copied to divided ones.
        """
        if has_adapter(self._model):
            return AdapterReference(self, self._model, values_of(self._model) if moved else None)
        if not moved and self.device.type == "cpu" and (self._folder / "config.json").is_file():
            return self.saved_reference(None)
        if is_sharded(self._model):
            return FrozenReference(self.second(self._folder, where="model.path"), follows=True)
        model = _frozen(copy.deepcopy(self._model))
        return FrozenReference(
            CausalLanguageModel(model, self._folder, self.version, forward=self._forward), follows=True
        )

    def saved_reference(self, folder: Path | None) -> Reference:
        """Return the reference saved in a folder, see `reference`; raises the same errors as `second`."""
        if has_adapter(self._model):
            return AdapterReference(self, self._model, read_values(self._model, folder) if folder else None)
        return FrozenReference(self.second(folder or self._folder, where="algorithm.kl.reference"))

    def second(self, folder: Path, *, where: str, dtype: str | None = None) -> CausalLanguageModel:
        """Load a frozen model. Raises the same errors as `rlcore_trainer.policy.model.load_second`."""
        model = load_second(folder, self._model, where=where, dtype=dtype)
        return CausalLanguageModel(_frozen(model), folder, forward=choose_forward(model, folder))

    @property
    def trunk_module(self) -> PreTrainedModel:
        """The layers below the output layer."""
        return _below_head(self._model)

    def trunk(self, folder: Path | None = None, *, where: str = "") -> Trunk:
        """Return the layers of a folder's model, with the errors of `second`, or a copy of the policy's own layers.

        If the processes hold parts of the policy, the copy has the weights of the policy's folder.
        """
        if folder is None and not is_sharded(self._model):
            return Trunk(copy.deepcopy(self.trunk_module), self._forward)
        folder = folder or self._folder
        second = load_second(folder, self._model, where=where)
        forward, model = choose_forward(second, folder), _below_head(second)
        if is_tower_frozen(self._model):
            freeze_tower(second)
        if self._model.is_gradient_checkpointing:
            _recompute_activations(model)
        return Trunk(model, forward)

    @torch.no_grad()
    def continuation(self, prompt: Prompt, token_ids: Sequence[int], *, rounded: bool = True) -> Tensor:
        """Return log-probabilities of the tokens, float64 [T]; see `rlcore_trainer.policy.policy.TokenPolicy`."""
        ids_1T = torch.tensor([[*prompt.token_ids, *token_ids]], device=self.device)
        inputs = image_inputs(prompt, ids_1T[:, :-1], self._folder) if prompt.media else {}
        with nullcontext() if rounded else computed_in_float32(self._model):
            found = self._root(self._model, input_ids=ids_1T[:, :-1], use_cache=False, **inputs)
        logits_TV = found.logits[0, len(prompt) - 1 :]
        logprobs_T: Tensor = logits_TV.float().log_softmax(-1).gather(1, ids_1T[0, len(prompt) :, None])[:, 0]
        return logprobs_T.double().cpu()

    @torch.no_grad()
    def largest_token(self) -> int:
        """Return the token whose embedding contains the largest absolute number, or NaN."""
        weight_VD = whole(self._model.get_input_embeddings().weight)  # type: ignore[arg-type]
        return int(torch.linalg.vector_norm(weight_VD, ord=math.inf, dim=1).argmax())

    @property
    def perturbations(self) -> int:
        """The number of ways in which `perturbed` modifies the weights."""
        return parts_of(self._model)

    def perturbed(self, number: int) -> AbstractContextManager[None]:
        """Return a context manager in which every trained tensor is modified by `perturbed_weights`."""
        return perturbed_weights(self._model, number, forward=partial(self._root, self._model))


def _recompute_activations(model: PreTrainedModel) -> None:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def _below_head(model: PreTrainedModel) -> PreTrainedModel:
    below = model.base_model
    assert isinstance(below, PreTrainedModel)
    return below


def _frozen(model: PreTrainedModel) -> PreTrainedModel:
    model.train(False)
    model.requires_grad_(False)
    return model
