"""The loop of episodes: several environments, and a policy that decides for many episodes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from rlcore.errors import EnvironmentFailure

from rlcore_control.environments import Array, Environments, Outcome, Start


class Reset(NamedTuple):
    """How an episode begins: the arguments of its environment's reset."""

    seed: int
    options: dict[str, Any] | None = None


class InProgress(Protocol):
    """An episode in progress."""

    planned: list[Array]
    """Actions that were decided and not executed yet."""
    steps: int
    """Number of executed actions."""

    def take(self, outcome: Outcome) -> None:
        """Add the outcome of an action. Raises EnvironmentFailure for one that cannot be used."""
        ...


EpisodeT = TypeVar("EpisodeT", bound=InProgress)


def play(
    environments: Environments,
    resets: Sequence[Reset],
    *,
    begin: Callable[[int, Start], EpisodeT],
    decide: Callable[[Sequence[EpisodeT]], None],
    finish: Callable[[int, EpisodeT | EnvironmentFailure], None],
    max_steps: int,
    block: int,
) -> None:
    """Play an episode of each reset. An environment begins its next episode when one ends.

    Args:
        environments: environments with the same spaces
        resets: the resets, of which an environment takes the next one
        begin: returns the episode of a reset with this index; may raise EnvironmentFailure
        decide: plans at least one action of each of these episodes, which are in the order of their environments
        finish: receives each index with its episode or its failure
        max_steps: an episode is truncated after this many actions
        block: number of episodes that decide together. With the number of environments, all of them act in lockstep.
    """
    waiting = iter(range(len(resets)))
    indices: dict[int, int] = {}
    playing: dict[int, EpisodeT] = {}
    asked: set[int] = set()
    undecided: set[int] = set()

    def start(slots: Iterable[int]) -> None:
        chosen = dict(zip(slots, waiting, strict=False))
        indices.update(chosen)
        asked.update(chosen)
        options = {slot: given for slot, i in chosen.items() if (given := resets[i].options) is not None}
        environments.begin({slot: resets[i].seed for slot, i in chosen.items()}, options)

    def act(slots: Sequence[int]) -> None:
        asked.update(slots)
        environments.act({slot: playing[slot].planned.pop(0) for slot in slots})

    def end(slot: int, result: EpisodeT | EnvironmentFailure) -> None:
        finish(indices[slot], result)
        start([slot])

    start(range(environments.num_envs))
    while asked:
        acting = []
        for slot, answer in environments.receive().items():
            asked.remove(slot)
            try:
                if isinstance(answer, EnvironmentFailure):
                    raise answer
                if isinstance(answer, Start):
                    playing[slot] = begin(indices[slot], answer)
                else:
                    playing[slot].take(answer)
            except EnvironmentFailure as failure:
                end(slot, failure)
                continue
            episode = playing[slot]
            if isinstance(answer, Outcome) and (answer.ended or episode.steps >= max_steps):
                end(slot, episode)
            elif episode.planned:
                acting.append(slot)
            else:
                undecided.add(slot)
        act(acting)
        # A block costs the same whether it is full or not, so decisions wait for a full one while others run.
        count = len(undecided) - (len(undecided) % block if asked else 0)
        if deciding := sorted(undecided)[:count]:
            decide([playing[slot] for slot in deciding])
            act(deciding)
            undecided.difference_update(deciding)


__all__ = ["InProgress", "Reset", "play"]
