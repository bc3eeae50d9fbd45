"""What a plan reads of a run: its model, its batch, its schedule and the memory of its learners."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rlcore.config.layers import Layer, override_layers
from rlcore.config.resolve import resolve
from rlcore.errors import UserError
from rlcore.models.shape import ModelShape, shape_of_folder, shape_of_name
from rlcore.plugins.registry import Registry
from rlcore.session.memory import CUDA_BYTES, DTYPE_BYTES
from rlcore.session.plan import RunPlan
from rlcore.session.session import RunSession
from rlcore.specs import GAPS, ModelOnDevice

from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.checks.expected_tokens import ExpectedTokens
from rlcore_trainer.checks.memory import memory_of
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.planning.cluster import CardTable
from rlcore_trainer.planning.costs import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACE = "plan: "
MOST_PROCESSES = 1024
"""Limit of ``strategy.processes``. On more cards, each group of so many has a copy of the model."""
DENSE = {
    0.5e9: (24, 896, 128),
    1.5e9: (28, 1536, 256),
    3e9: (36, 2048, 256),
    7e9: (28, 3584, 512),
    14e9: (48, 5120, 1024),
    32e9: (64, 5120, 1024),
    72e9: (80, 8192, 1024),
    235e9: (94, 4096, 512),
}
"""Layers, width and width of the keys of Qwen2.5 and Qwen3 by their parameters, for models known by their name."""
_ACTIVE = re.compile(r"(?<![\w.])A(\d+(?:\.\d+)?)[Bb](?![a-z])")
"""``A3B`` in ``Qwen3-30B-A3B``."""
_MIXED = 0.7
"""A model of which a token uses at most this share of the parameters has experts."""
ENGINE = "weights of the engine"
"""A part of the memory of a learner that has no engine on its card, or one that sleeps during updates."""


@dataclass(slots=True, kw_only=True)
class Recipe:
    """A run to plan, whose strategy a plan replaces."""

    layers: Sequence[Layer]
    name: str
    registry: Registry
    run: RunSession
    model: Model
    shape: ModelShape
    known_by_name: bool
    _needs: dict[tuple[str, ...], float] = field(default_factory=dict)

    @property
    def trainer(self) -> PolicyGradientConfig:
        """The options of the trainer."""
        options: PolicyGradientConfig = self.run.options("trainer")
        return options

    @property
    def passes(self) -> float:
        """Forward passes per trained token, with a backward pass as two, on checkpointed activations three."""
        algorithm = self.run.resolved.options.get("algorithm")
        reference = isinstance(algorithm, AlgorithmConfig) and bool(algorithm.kl.coefficient)
        update = 3 + self.trainer.gradient_checkpointing
        return 1 + reference + update * self.trainer.epochs  # the first is for the log-probabilities of the policy

    def strategy(self, cards: int, least: int) -> list[str]:
        """The strategy on so many cards, of which ``least`` hold the model, as overrides."""
        id = self.run.config.strategy.id
        if cards == 1:
            return ["strategy.id=single", "strategy.processes=1"]
        id = id if id in {"ddp", "fsdp2"} else "ddp" if least == 1 else "fsdp2"
        size = self.run.options("strategy").shard_size if id == self.run.config.strategy.id == "fsdp2" else None
        limited = [f"strategy.shard_size={MOST_PROCESSES}"] if id == "fsdp2" and cards > MOST_PROCESSES else []
        kept = [f"strategy.shard_size={size}"] if size is not None else limited
        return [f"strategy.id={id}", f"strategy.processes={min(cards, MOST_PROCESSES)}", *kept]

    def learner_bytes(self, cards: int, least: int, card: CardTable) -> float:
        """The memory of a card that learns with so many others, at its peak."""
        strategy = tuple(self.strategy(cards, least))
        if strategy not in self._needs:
            trees = ({name: table for name, table in one.tree.items() if name != "strategy"} for one in self.layers)
            own = [replace(layer, tree=tree) for layer, tree in zip(self.layers, trees, strict=True)]
            layers = [*own, *override_layers(strategy, PLACE)]
            resolved = resolve(layers, self.registry, recipe=self.name)
            run = RunSession(RunPlan(resolved=resolved), self.registry)
            size = DTYPE_BYTES.get(run.config.model.dtype, 2)
            budget = run.options("trainer").max_tokens_per_batch
            device = ModelOnDevice(shape=self.shape, element_bytes=size, gpu_bytes=int(card.memory_gb * 1e9))
            needs = memory_of(run, device, ExpectedTokens(budget, budget))
            held = sum(bytes for name, bytes in needs.parts.items() if name != ENGINE)
            phases = ([bytes for name, bytes in one.items() if name != GAPS] for one in needs.phases.values())
            self._needs[strategy] = CUDA_BYTES + held + max(map(sum, phases))
        return self._needs[strategy]


def read_recipe(layers: Sequence[Layer], registry: Registry, name: str) -> Recipe:
    """Read a run from its configuration.

    Raises:
        UserError: its trainer does not sample, or the sizes of its model are not known.
    """
    run = RunSession(RunPlan(resolved=resolve(list(layers), registry, recipe=name)), registry)
    if not isinstance(run.options("trainer"), PolicyGradientConfig):
        raise UserError(
            "only runs that sample and learn can be planned",
            found=f"trainer.id = {run.config.trainer.id!r}",
            fix="use a recipe with trainer.id=policy-gradient",
        )
    path = run.config.model.path
    here = run.model_here()
    shape = shape_of_name(path) if here is None else shape_of_folder(here)
    if shape is None:
        raise UserError(
            "the sizes of the model are not known",
            found=f"{path!r} is not on this machine, and its name has no size such as 7B",
            where=run.resolved.origin(("model", "path")),
            fix="model=FOLDER, with its config.json and weights",
        )
    if shape.layers == 0:
        parameters = shape.parameters
        near = min(DENSE, key=lambda size: abs(math.log(size / parameters)))
        layers_, width, key_width = DENSE[near]
        shape = replace(
            shape, layers=layers_, width=width, key_width=key_width, feed_forward=5 * width, vocabulary=151936
        )
    model = Model(
        parameters=shape.parameters,
        active=_active(shape, path if here is None else ""),
        layers=shape.layers,
        width=shape.width,
        key_width=shape.key_width,
        element_bytes=DTYPE_BYTES.get(run.config.model.dtype, 2),
    )
    return Recipe(
        layers=layers, name=name, registry=registry, run=run, model=model, shape=shape, known_by_name=here is None
    )


def _active(shape: ModelShape, name: str) -> float:
    """The parameters that compute a token."""
    if found := _ACTIVE.search(name.replace("-", " ").replace("_", " ")):
        return float(found[1]) * 1e9
    attention = 2 * shape.width * (shape.width + shape.key_width)
    used = shape.layers * (attention + 3 * shape.width * shape.feed_forward) + shape.vocabulary * shape.width
    return used if not name and used < _MIXED * shape.parameters else shape.parameters
