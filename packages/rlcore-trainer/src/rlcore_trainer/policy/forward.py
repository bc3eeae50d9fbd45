"""The forward pass of a causal language model on micro-batches: packed, or plain for every other architecture.

Axes: ``N`` the tokens of a packed row, ``M`` its trained tokens, ``D`` the width of the model, ``V`` the vocabulary,
``B`` the sequences of a bucket, ``L`` the longest sequence of a bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from rlcore.errors import UserError
from rlcore.images import ImageProcessor
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlcore_trainer.batching.packing import MicroBatch, pack
from rlcore_trainer.policy.attention.packed import packed_attention_of
from rlcore_trainer.policy.forward_probes import image_processor, one_by_one, probes, vocabulary
from rlcore_trainer.policy.hidden import batch_logprobs, hidden_before, no_images
from rlcore_trainer.policy.logprobs import LossOfChunk, fused_loss, logprobs_and_entropy
from rlcore_trainer.policy.model import not_finite, output_head
from rlcore_trainer.policy.widened import computed_in_float32

PACKED_LAYERS = {"full_attention", "sliding_attention"}
"""Types of layers that packed attention computes. Others, such as linear attention, carry a state between tokens."""


LossOfBatch = tuple[Tensor, list[dict[str, Tensor]], Tensor]


class Forward(Protocol):
    """How a model computes a micro-batch."""

    @property
    def note(self) -> str | None:
        """A line for the log; None if there is nothing to say."""
        ...

    def computing(self, model: PreTrainedModel) -> AbstractContextManager[None]:
        """Return a context manager around the forward and backward pass."""
        ...

    def features(self, model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        """Return the hidden states that predict the trained tokens, ``hidden_MD``, without the output layer."""
        ...

    def evaluate(self, model: PreTrainedModel, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy in nats of every trained token, ``(logprobs_M, entropy_M)``."""
        ...

    def loss(
        self,
        model: PreTrainedModel,
        batch: MicroBatch,
        loss_of_chunk: LossOfChunk,
        *,
        temperature: float,
        entropy: bool,
        token_wise: bool,
    ) -> LossOfBatch:
        """Compute a loss of the values of `evaluate`; see `rlcore_trainer.policy.policy.Policy.loss`.

        Returns:
            The loss, the metrics of each part, and the hidden states ``hidden_MD``.
        """
        ...


@dataclass(frozen=True, slots=True)
class PackedForward:
    """One row without padding, each shared prompt and image once, and a loss fused with the output layer."""

    processor: ImageProcessor | None = None
    """How a vision-language model sees images."""
    note: str | None = None

    def computing(self, model: PreTrainedModel) -> AbstractContextManager[None]:
        """See `Forward`."""
        return packed_attention_of(model)

    def features(self, model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        """See `Forward`."""
        return hidden_before(model, batch, self.processor)

    def evaluate(self, model: PreTrainedModel, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
        """See `Forward`."""
        return batch_logprobs(model, batch, temperature=temperature, processor=self.processor)

    def loss(
        self,
        model: PreTrainedModel,
        batch: MicroBatch,
        loss_of_chunk: LossOfChunk,
        *,
        temperature: float,
        entropy: bool,
        token_wise: bool,
    ) -> LossOfBatch:
        """See `Forward`."""
        hidden_MD, head_VD = hidden_before(model, batch, self.processor), output_head(model)
        if token_wise:
            fused = fused_loss(
                hidden_MD, head_VD, batch.targets_M, loss_of_chunk, temperature=temperature, entropy=entropy
            )
            return fused.loss, fused.metrics, hidden_MD
        logprobs_M, entropy_M = logprobs_and_entropy(hidden_MD, head_VD, batch.targets_M, temperature=temperature)
        loss, metrics = loss_of_chunk(slice(None), logprobs_M, entropy_M)
        return loss, [metrics], hidden_MD


@dataclass(frozen=True, slots=True)
class PlainForward:
    """The model's own forward pass, ``model(input_ids)``, on sequences of similar length padded at the end.

    A causal model does not see the padding, so no attention mask is needed. Each response has a copy of its prompt, and
    the logits of the trained tokens are stored, which takes more time and memory than `PackedForward`. It computes no
    images.
    """

    note: str | None = None

    def computing(self, model: PreTrainedModel) -> AbstractContextManager[None]:
        """See `Forward`."""
        return nullcontext()

    def features(self, model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        """See `Forward`."""
        (hidden_MD,) = _of_trained_tokens(
            batch, lambda ids_BL: (model.base_model(input_ids=ids_BL, use_cache=False).last_hidden_state,)
        )
        return hidden_MD

    def evaluate(self, model: PreTrainedModel, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
        """See `Forward`."""
        return self._evaluate(model, batch, temperature)[:2]

    def loss(
        self,
        model: PreTrainedModel,
        batch: MicroBatch,
        loss_of_chunk: LossOfChunk,
        *,
        temperature: float,
        entropy: bool,
        token_wise: bool,
    ) -> LossOfBatch:
        """See `Forward`."""
        logprobs_M, entropy_M, hidden_MD = self._evaluate(model, batch, temperature)
        loss, metrics = loss_of_chunk(slice(None), logprobs_M, entropy_M if entropy else None)
        return loss, [metrics], hidden_MD

    def _evaluate(self, model: PreTrainedModel, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, entropies, and the inputs of the output layer, ``hidden_MD``."""
        inputs: list[Tensor] = []
        head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        hook = head.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
        try:
            logits_MV, hidden_MD = _of_trained_tokens(
                batch, lambda ids_BL: (model(input_ids=ids_BL, use_cache=False).logits, inputs.pop())
            )
        finally:
            hook.remove()
        wide = logits_MV if logits_MV.dtype == torch.float64 else logits_MV.float()
        all_MV = (wide / temperature).log_softmax(-1)
        logprobs_M = all_MV.gather(1, batch.targets_M[:, None])[:, 0]
        least = torch.finfo(all_MV.dtype).min  # a model may exclude tokens with -inf, and 0 * -inf is not a number
        entropy_M = -(all_MV.exp() * all_MV.clamp(min=least)).sum(-1)
        return logprobs_M, entropy_M, hidden_MD


def _of_trained_tokens(batch: MicroBatch, run: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Run padded buckets, and return the rows of the results [B, L, ...] that predict the trained tokens."""
    if batch.images is not None:
        raise no_images("a model that is computed without packed rows")
    if batch.layout.team is not None:
        raise UserError(
            "strategy.sequence_parallel needs a model that is computed with packed rows",
            where="model.path",
            fix="strategy.sequence_parallel=1",
        )
    whole = batch.layout.whole
    ids_P = whole.places(batch.token_ids_1N[0])
    slots_M = batch.before_M if whole.scatter_N is None else whole.scatter_N[batch.before_M]
    found: list[tuple[Tensor, ...]] = []
    order: list[Tensor] = []
    start = 0
    for sequences, length in whole.shapes:
        stop = start + sequences * length
        here = ((slots_M >= start) & (slots_M < stop)).nonzero()[:, 0]
        if len(here) or not len(slots_M):  # a row without trained tokens is computed, too: see `Share.padding`
            results = run(ids_P[start:stop].view(sequences, length))
            found.append(tuple(x_BLX.flatten(0, 1).index_select(0, slots_M[here] - start) for x_BLX in results))
            order.append(here)
        start = stop
    back = torch.cat(order).argsort()
    return tuple(torch.cat(parts).index_select(0, back) for parts in zip(*found, strict=True))


@torch.no_grad()
def choose_forward(model: PreTrainedModel, folder: Path) -> Forward:
    """Return the packed forward pass if it computes the model's own log-probabilities, and the plain one otherwise.

    The log-probabilities of short sequences, two of which share a prompt, are compared with ``model(ids)``. For a
    vision-language model, two share a prompt with an image, and one has an image in a later turn.

    Raises:
        UserError: the log-probabilities are not finite, the model is not causal, or a vision-language model has no
            image processor or is not computed correctly with packed rows.
    """
    processor = image_processor(model, folder)
    sequences = probes(model, processor)
    (batch,) = pack(sequences, 1000, model.device)
    with computed_in_float32(model):
        expected_M = one_by_one(model, sequences, batch, processor)
    if not bool(expected_M.isfinite().all()):
        raise not_finite("log-probabilities of nan", folder)
    # The computation in float32 shows what both compute without the rounding of half precision. Only the patches of
    # images are rounded nevertheless.
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.05
    reason = _unpackable(model)
    if reason is None:
        packed = PackedForward(processor)
        try:
            with computed_in_float32(model), packed.computing(model):
                worst = float((packed.evaluate(model, batch, 1.0)[0].float() - expected_M).abs().max())
            if worst < tolerance:
                return packed
            reason = f"packed log-probabilities differ by {worst:.3g}"
        except Exception as error:  # an architecture may reject packed rows with any exception
            reason = f"packed rows raise {type(error).__name__}: {error}".split("\n")[0]
    name = type(model).__name__
    if processor is not None:
        raise UserError(
            "a vision-language model must be computed with packed rows",
            found=f"{name}: {reason}",
            where=str(folder),
            fix="choose a model of Qwen2-VL, Qwen2.5-VL or Qwen3-VL",
        )
    plain = PlainForward(f"forward   plain: {name} is computed with padding and without shared prompts ({reason})")
    try:
        with computed_in_float32(model):
            found, worst = None, float((plain.evaluate(model, batch, 1.0)[0].float() - expected_M).abs().max())
    except Exception as error:  # as above
        found, worst = f"{name} raises {type(error).__name__}: {error}", float("inf")
    if not worst < tolerance:
        raise UserError(
            "training needs a causal language model, whose log-probabilities do not depend on later tokens",
            found=found or f"{name}, whose log-probabilities differ by {worst:.3g} with padding after them",
            where=str(folder),
            fix="choose a model of another architecture",
        )
    return plain


def _unpackable(model: PreTrainedModel) -> str | None:
    """Return a property of the model that packed rows cannot represent, whatever its weights are."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if not isinstance(head, nn.Linear) or head.bias is not None:
        return "its output layer is not a matrix without bias"
    types = model.config.get_text_config().to_dict().get("layer_types") or ()
    if others := sorted({str(kind) for kind in types} - PACKED_LAYERS):
        return f"it has layers of type {', '.join(others)}"
    if not model._supports_attention_backend:
        return "its attention cannot be replaced"
    return None if _is_linear(model, head) else "it changes the logits of its output layer"


def _is_linear(model: PreTrainedModel, head: nn.Linear) -> bool:
    """Return whether the logits are the product of the output layer, tried with large inputs of this layer."""
    inputs: list[Tensor] = []

    def enlarge(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        largest = (arguments[0] @ head.weight.T).abs().max().clamp(min=1e-30)
        inputs.append(arguments[0] * (100 / largest))
        return (inputs[-1], *arguments[1:])

    ids_1T = torch.arange(4, device=model.device)[None] % vocabulary(model)
    hook = head.register_forward_pre_hook(enlarge)
    try:
        logits_1TV = model(input_ids=ids_1T, use_cache=False).logits
    finally:
        hook.remove()
    return bool((logits_1TV - head(inputs[-1])).abs().max() < 1)
