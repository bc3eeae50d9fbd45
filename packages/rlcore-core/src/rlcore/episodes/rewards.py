"""The rewards of a run, created from their specs and options."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from rlcore.abilities import RemoteReward
from rlcore.episodes.calls import place_of
from rlcore.episodes.context import takes_context
from rlcore.episodes.served_rewards import ServedReward
from rlcore.errors import PluginError, UserError
from rlcore.plugins.registry import Registry, make_component
from rlcore.specs import RewardSpec
from rlcore.types import Trajectory

if TYPE_CHECKING:
    from pydantic import BaseModel

    from rlcore.config.schema import RewardTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedReward:
    """A reward of the run."""

    id: str
    weight: float
    scope: Literal["trajectory", "group"]
    function: Any
    """A `Reward`, or a `GroupReward` where ``scope`` is ``group``."""
    minimum: float
    maximum: float
    origin: str = ""
    """The plugin that registered it, for messages."""
    rewards_silence: bool = False
    """As in `RewardSpec`."""
    takes_context: bool = field(init=False)
    """Whether ``function`` declares the parameter ``context``."""
    timeout_s: float | None = field(init=False)
    """Deadline of a call that the reward sets itself (`RemoteReward`); None leaves it to the run."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "takes_context", takes_context(self.function))
        remote = isinstance(self.function, RemoteReward)
        object.__setattr__(self, "timeout_s", self.function.reward_timeout_s if remote else None)

    @property
    def refusal(self) -> UserError | None:
        """The reason why no further call of a `RemoteReward` can succeed, if there is one."""
        return self.function.refusal if isinstance(self.function, RemoteReward) else None

    async def close(self) -> None:
        """Close the connections of a `RemoteReward`."""
        if isinstance(self.function, RemoteReward):
            await self.function.close()


def raise_refusal(rewards: Iterable[SelectedReward], trajectories: Iterable[Trajectory]) -> None:
    """Raise the `UserError` of a reward with a weight that can answer no further call, if a trajectory is not scored.

    A few trajectories may have a score without a call. They say nothing about the policy.
    """
    if any(trajectory.reward is None for trajectory in trajectories):
        for reward in rewards:
            if reward.weight and reward.refusal is not None:
                raise reward.refusal


def select_rewards(
    registry: Registry, tables: Sequence[RewardTable], options: Sequence[BaseModel | None], *, timeout_s: float
) -> tuple[SelectedReward, ...]:
    """Return the rewards of these tables, each created from its validated options.

    Args:
        registry: has the rewards
        tables: their tables
        options: the options of each
        timeout_s: time of a call of a reward on servers

    Raises:
        PluginError: a reward cannot be created, or does not accept the arguments of a reward.
    """
    selected = []
    for table, own in zip(tables, options, strict=True):
        spec = cast(RewardSpec, registry.spec("reward", table.id))
        if table.servers:
            function: Any = ServedReward(table.id, table.servers, timeout_s=timeout_s)
        else:
            function = make_component(registry.named("reward", table.id), registry.load("reward", table.id), own)
        offer = registry.offer("reward", table.id)
        _check_takes(table.id, function, ("group",) if spec.scope == "group" else ("trajectory", "task"))
        reward = SelectedReward(
            id=table.id,
            weight=table.weight,
            scope=spec.scope,
            function=function,
            minimum=spec.minimum,
            maximum=spec.maximum,
            origin=offer.plugin.origin if offer is not None else "",
        )
        selected.append(reward)
    return tuple(selected)


def _check_takes(id: str, function: Any, arguments: tuple[str, ...]) -> None:
    """Raise an error if the signature of a reward does not accept these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled code
        return
    try:
        signature.bind(*arguments, **({"context": None} if takes_context(function) else {}))
    except TypeError as error:
        wanted, line = f"({', '.join(arguments)})", place_of(function)
        raise PluginError(
            f"reward {id!r} is called with {wanted}",
            found=f"it takes {signature}: {error}",
            where=line,
            fix=f"give it the parameters {wanted}",
        ) from error
