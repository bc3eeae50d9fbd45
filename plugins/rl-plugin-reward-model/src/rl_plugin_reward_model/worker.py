"""The process that scores conversations: ``python -m rl_plugin_reward_model.worker FOLDER DEVICE DTYPE FORMAT TOKENS``.

Stdin is a socket. Each line of conversations is answered by a line ``{"scores": […]}``, which has a text in place of a
score that cannot be computed. If the model cannot be loaded, the only answer is ``{"failure": …}``.

Axes: ``B`` the conversations of a batch, ``L`` the longest of them, ``D`` the width of the model.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from rlcore.contracts import ChatFormat
from rlcore.errors import RlcoreError, UserError
from rlcore.models.config_file import context_tokens
from rlcore.plugins.registry import Registry
from rlcore.session.model_inputs import detected_chat_format
from rlcore.types import Message, ToolSchema, from_json
from rlcore_models.device import device_name
from rlcore_models.loading import load_model
from torch import Tensor
from transformers import PreTrainedModel


class Classifier:
    """A reward model with its chat format.

    Args:
        folder: a checked folder of a reward model
        device: as in the configuration
        dtype: as in the configuration
        chat_format: as in the configuration
        tokens_per_batch: as in the configuration

    Raises:
        RlcoreError: the model cannot be loaded, or no chat format supports its tokenizer.
    """

    def __init__(self, folder: Path, device: str, dtype: str, chat_format: str, tokens_per_batch: int) -> None:
        registry = Registry()
        id = detected_chat_format(registry, folder) if chat_format == "auto" else chat_format
        self._format: ChatFormat = registry.load("chat_format", id)(folder)
        self._limit, self._tokens = context_tokens(folder), tokens_per_batch
        chosen = torch.device(device_name(device, gpus=torch.cuda.device_count()))
        self._model: PreTrainedModel = load_model(folder, dtype=dtype, device=chosen)
        if not hasattr(self._model, "score"):
            raise UserError("a reward model must have the head 'score'", found=type(self._model).__name__)

    def scores(self, conversations: Sequence[Mapping[str, Any]]) -> list[float | str]:
        """Return a score or an error for each conversation."""
        found: dict[int, float | str] = {}
        ids: dict[int, list[int]] = {}
        for place, one in enumerate(conversations):
            try:
                ids[place] = self.tokens(one)
            except (RlcoreError, ValueError) as error:
                found[place] = " ".join(str(error).split())
        for places in self._batches(ids):
            found |= dict(zip(places, self._scored([ids[place] for place in places]).tolist(), strict=True))
        return [found[place] for place in range(len(conversations))]

    def tokens(self, conversation: Mapping[str, Any]) -> list[int]:
        """Return the tokens of a conversation up to the last one that the assistant writes.

        Raises:
            ValueError: it is too long, or cannot be read.
            RlcoreError: the chat format cannot show it.
        """
        messages = [from_json(Message, one) for one in conversation["messages"]]
        tools = [from_json(ToolSchema, one) for one in conversation["tools"]]
        ids, mask = self._format.conversation(messages, tools)
        end = len(mask) - mask[::-1].index(True)
        if self._limit is not None and end > self._limit:
            raise ValueError(f"the conversation has {end:,} tokens, and the reward model reads {self._limit:,}")
        return ids[:end]

    def _batches(self, ids: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
        """Yield places of conversations of similar length that are computed at once.

        On a CPU, each is computed alone: the rounding of a matrix product may depend on the number of its rows, and
        which conversations wait together depends on timing.
        """
        order = sorted(ids, key=lambda place: len(ids[place]))
        limit = self._tokens if self._model.device.type != "cpu" else 0
        batch: list[int] = []
        for place in order:
            if batch and (len(batch) + 1) * len(ids[place]) > limit:
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    @torch.inference_mode()
    def _scored(self, batch: Sequence[Sequence[int]]) -> Tensor:
        """Return the scores of a batch, float64 [B] on the CPU."""
        device, longest = self._model.device, max(map(len, batch))
        ids_BL = torch.tensor([[*row, *[0] * (longest - len(row))] for row in batch], device=device)
        last_B = torch.tensor([len(row) - 1 for row in batch], device=device)
        seen_BL = torch.arange(longest, device=device) <= last_B[:, None]
        base = cast(PreTrainedModel, self._model.base_model)
        hidden_BLD = base(input_ids=ids_BL, attention_mask=seen_BL.long(), use_cache=False).last_hidden_state
        state_BD = hidden_BLD[torch.arange(len(batch), device=device), last_B]
        scores_B1: Tensor = self._model.get_submodule("score")(state_BD)
        return scores_B1[:, 0].double().cpu()


def main(folder: str, device: str, dtype: str, chat_format: str, tokens: str) -> None:
    """Answer lines until the input ends."""
    answers = os.fdopen(os.dup(0), "w", encoding="utf-8")
    try:
        model = Classifier(Path(folder), device, dtype, chat_format, int(tokens))
    except RlcoreError as error:
        sys.stdin.readline()
        print(json.dumps({"failure": " ".join(str(error).split())}), file=answers, flush=True)
        return
    for line in sys.stdin:
        print(json.dumps({"scores": model.scores(json.loads(line))}), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
