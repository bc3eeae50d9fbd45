"""The policy outside of a run, for agents that are used or evaluated and not trained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlcore.cli.evaluate import given_run
from rlcore.cli.layering import gather
from rlcore.config.layers import values_layer
from rlcore.config.resolve import resolve
from rlcore.errors import UserError
from rlcore.models.folder import BUILTIN
from rlcore.models.weights import FolderWeights
from rlcore.plugins.registry import Registry
from rlcore.session.components import RunComponents
from rlcore.session.plan import RunPlan
from rlcore.types import FrozenDict, Message, Response, ToolSchema, derive_seed
from rlcore_rollout.conversations import Conversations
from rlcore_rollout.images import EpisodeImages, ImagePool
from rlcore_rollout.model_client import ModelClient
from rlcore_rollout.sampler.engine_client import answer_of, make_model_client, sampling_of

OF_EPISODES = ("environment", "reward", "data", "trackers")
"""Tables of a run that a served policy does not need."""
REQUESTS = 1000
"""Requests after which conversations are forgotten, which bounds the memory. Later requests render them again."""


def components_to_serve(model: str, overrides: Sequence[str], files: Sequence[str]) -> RunComponents:
    """The components for a model that is given by its folder, run directory, checkpoint, builder or hub id.

    Raises:
        UserError: the configuration cannot be used.
    """
    registry = Registry()
    if model.startswith(BUILTIN):
        fix = "train it with rlcore run, and give the run directory"
        raise UserError("a built-in model is built for the data of a run", found=model, fix=fix)
    given, base, recipe = tuple(overrides), None, ""
    if Path(model).expanduser().is_dir():
        given, base, recipe = given_run((model, *overrides), wanted=True)
    base = base or values_layer({"model": {"path": model}}, "MODEL")
    base = replace(base, tree={name: table for name, table in base.tree.items() if name not in OF_EPISODES})
    layered = gather(registry, files=files, overrides=given, base=base, base_recipe=recipe)
    resolved = resolve(layered.layers, registry, recipe=layered.recipe, purpose="serving")
    return RunComponents(RunPlan(resolved=resolved, purpose="serving"), registry)


def _folder(components: RunComponents) -> Path:
    """The folder of the model. Raises `UserError`, in the words of the command if there is neither run nor folder."""
    try:
        return components.model_folder()
    except UserError as error:
        path = components.config.model.path
        if Path(path).expanduser().exists():
            raise
        raise UserError(
            f"there is no run or model folder {path}, and no such model of the hub can be loaded",
            found=f"{error.message}: {error.found}" if error.found else error.message,
            fix="give a run directory, a checkpoint of a run, a model folder or a hub id",
        ) from error


class Era:
    """The conversations of a served policy that are remembered together.

    Args:
        conversations: answer the requests
        first: number of the first turn
    """

    def __init__(self, conversations: Conversations, first: int) -> None:
        self.conversations, self.first = conversations, first
        self.asked = self.pending = 0


class ServedPolicy:
    """Answers requests for any time, as a policy of one long episode (`rlcore.harnesses.EpisodePolicy`)."""

    max_turns: int | None = None

    def __init__(self, components: RunComponents) -> None:
        folder = None if components.own_model is not None else _folder(components)
        self._client: ModelClient = make_model_client(components, FolderWeights(folder=folder))
        self._sampling = sampling_of(components.config.rollout, self._client)
        self._seed, self._timeout_s = components.config.seed, components.config.rollout.engine_timeout_s
        self._era = self._begin(0)

    @property
    def turns(self) -> int:
        """The number of requests so far."""
        return self._era.first + self._era.asked

    async def respond(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSchema] = (),
        images: Iterable[bytes] = (),
        sampling: Mapping[str, Any] = FrozenDict(),
    ) -> Response:
        """As `EpisodePolicy.respond`."""
        if self._era.asked >= REQUESTS or self._era.conversations.failure is not None:
            await self._forget()
        era = self._era
        era.asked, era.pending = era.asked + 1, era.pending + 1
        try:
            turn, completion = await era.conversations.respond(messages, tools=tools, images=images, sampling=sampling)
        finally:
            era.pending -= 1
            if era is not self._era and not era.pending:
                await era.conversations.close()
        return Response(era.first + turn, completion)

    def withdraw(self, turn: int) -> None:
        """As `EpisodePolicy.withdraw`."""
        if turn >= self._era.first:
            self._era.conversations.withdraw(turn - self._era.first)

    def reward(self, value: float, *, turn: int | None = None) -> None:
        """Raise `ValueError`."""
        raise ValueError("this policy is served without training, so it takes no rewards")

    def role(self, name: str) -> ServedPolicy:
        """This policy: its conversations are not kept."""
        return self

    async def close(self) -> None:
        """End the conversations and the engine."""
        await self._era.conversations.close()
        await answer_of(self._client.engine.close)

    async def _forget(self) -> None:
        """Begin a new era. The last answer of the old one closes it."""
        old, self._era = self._era, self._begin(self.turns)
        if not old.pending:
            await old.conversations.close()

    def _begin(self, first: int) -> Era:
        conversations = Conversations(
            model_client=self._client,
            sampling=replace(self._sampling, seed=derive_seed(self._seed, "served", first)),
            session=f"served-{first}",
            images=EpisodeImages(ImagePool(self._client.fit)),
            release=lambda session: answer_of(self._client.engine.release, session),
            timeout_s=self._timeout_s,
            until=math.inf,
        )
        return Era(conversations, first)
