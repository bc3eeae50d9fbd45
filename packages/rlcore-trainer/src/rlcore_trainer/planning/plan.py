"""The plan of a run on a number of cards: how they are divided, what a step then takes, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rlcore.console.wording import counted
from rlcore.errors import UserError

from rlcore_trainer.planning.cluster import ClusterTable
from rlcore_trainer.planning.costs import Decoding, Learning, transfer_s
from rlcore_trainer.planning.recipe import MOST_PROCESSES, Recipe
from rlcore_trainer.planning.simulation import Outcome, Setting, simulate
from rlcore_trainer.planning.trajectories import Trajectories

ROOM = 0.9
"""Share of a card's memory that is used, as with vLLM's default."""
WEIGHTS = 0.6
"""Largest share of this memory for the weights of an engine; the rest is for caches."""
SEQUENCES = 256
"""Most sequences of an engine at a time, as with vLLM's default."""
SHARES = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8)
"""Tried shares of the cards that sample."""
TRIED_STEPS, TRIED_TURNS = 5, 512
"""Size of the simulations that choose a share."""
MOST_TRAJECTORIES = 10_000
"""Most trajectories of a step for each card: a part of a cluster has at least one engine."""
LITTLE = 0.1
"""A loss below this share of a step is not worth a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A planned run."""

    cards: int
    samplers: int
    """Cards that sample."""
    learners: int
    """Cards that learn; with ``ahead=0``, the same ones."""
    engine_cards: int
    ahead: int
    max_age: int | None
    groups: int
    outcome: Outcome
    learner_bytes: float
    sampler_bytes: float
    sent_bytes: float
    """Bytes that the network carries at a transfer: one copy for each node with samplers."""
    limit: str
    """What limits the run first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans one run for several sizes of one cluster."""

    cluster: ClusterTable
    recipe: Recipe
    trajectories: Trajectories

    def row(self, cards: int, *, ahead: int, max_age: int | None, groups: int) -> Row:
        """The best plan on so many cards.

        Raises:
            UserError: the model does not fit on the cards.
        """
        least, engine = self._least_learners(), self._engine_cards()
        needed = max(least, engine) if not ahead else least + engine
        if cards < needed:
            shown = f"an engine needs {engine} and a learner {least} of these cards"
            raise UserError(
                f"the model does not fit on {counted(cards, 'card')} with schedule.ahead={ahead}",
                found=f"{shown}: {self.recipe.model.bytes / 1e9:.0f} GB of weights",
                fix=f"--gpus {needed} or more, an adapter (lora.rank=16), or cards with more memory",
            )
        if groups * self.recipe.run.config.rollout.group_size > MOST_TRAJECTORIES * cards:
            raise UserError(
                "a step has too many trajectories to simulate",
                found=f"more than {MOST_TRAJECTORIES:,} for each card",
                fix="a smaller trainer.tasks_per_step",
            )
        if not ahead:
            setting = self._setting(cards, cards, engine, ahead, max_age, groups)
            return self._planned(cards, cards, cards, setting)
        shares = {max(engine, round(cards * share / engine) * engine) for share in SHARES}
        possible = [samplers for samplers in sorted(shares) if cards - samplers >= least] or [cards - least]
        tried = {
            samplers: self._setting(samplers, cards - samplers, engine, ahead, max_age, groups) for samplers in possible
        }
        best = min(tried, key=lambda one: simulate(tried[one], steps=TRIED_STEPS, most_turns=TRIED_TURNS).step_s)
        return self._planned(cards, best, cards - best, tried[best])

    def _planned(self, cards: int, samplers: int, learners: int, setting: Setting) -> Row:
        outcome, model = simulate(setting), self.recipe.model
        nodes = -(-samplers // self.cluster.gpus_per_node)
        held = model.bytes / setting.decoding.cards
        cache = setting.decoding.slots * self.trajectories.mean_length * model.cache_bytes / setting.decoding.cards
        row = Row(
            cards=cards,
            samplers=samplers,
            learners=learners,
            engine_cards=setting.decoding.cards,
            ahead=int(setting.ahead),
            max_age=setting.max_age,
            groups=setting.groups,
            outcome=outcome,
            learner_bytes=self.recipe.learner_bytes(learners, self._least_learners(), self.cluster.kind),
            sampler_bytes=held + cache,
            sent_bytes=nodes * model.bytes * min(1.0, self.cluster.gpus_per_node / setting.decoding.cards),
            limit="",
        )
        return replace(row, limit=limit_of(row, setting))

    def _setting(
        self, samplers: int, learners: int, engine: int, ahead: int, max_age: int | None, groups: int
    ) -> Setting:
        cluster, recipe, model = self.cluster, self.recipe, self.recipe.model
        memory = ROOM * cluster.kind.memory_gb * 1e9 * engine
        caches = (memory - model.bytes) / max(1.0, model.cache_bytes * self.trajectories.mean_length)
        slots = min(SEQUENCES, recipe.run.config.rollout.concurrency, int(caches))
        if slots < 1:
            raise UserError(
                "the cache of one trajectory does not fit on an engine",
                found=f"{self.trajectories.mean_length:,.0f} tokens on {counted(engine, 'card')}",
                fix="a smaller rollout.max_new_tokens, or cards with more memory",
            )
        options = recipe.run.options("strategy")
        overrides = dict(one.split("=") for one in recipe.strategy(learners, self._least_learners()))
        group = int(overrides.get("strategy.shard_size", learners))
        within = group <= cluster.gpus_per_node
        link = cluster.kind.link_gb_s if within else cluster.network_gb_s / cluster.gpus_per_node
        return Setting(
            trajectories=self.trajectories,
            decoding=Decoding(model=model, card=cluster.kind, efficiency=cluster.efficiency, cards=engine, slots=slots),
            engines=max(1, samplers // engine),
            learning=Learning(
                model=model,
                card=cluster.kind,
                efficiency=cluster.efficiency,
                cards=learners,
                passes=recipe.passes,
                replica=options.sequence_parallel,
                micro_batch=recipe.trainer.max_tokens_per_batch,
                gathered_gb_s=link if overrides["strategy.id"] == "fsdp2" else None,
                shares_cards=not ahead,
            ),
            transfer_s=transfer_s(
                model,
                cluster.efficiency,
                cluster.network_gb_s,
                -(-samplers // cluster.gpus_per_node),
                share=min(1.0, cluster.gpus_per_node / engine),
            ),
            groups=groups,
            group_size=recipe.run.config.rollout.group_size,
            ahead=ahead,
            max_age=max_age,
            updates=recipe.trainer.updates_per_rollout * recipe.trainer.epochs,
        )

    def _engine_cards(self) -> int:
        room, cards = ROOM * WEIGHTS * self.cluster.kind.memory_gb * 1e9, 1
        while self.recipe.model.bytes / cards > room:
            cards *= 2
        return cards

    def _least_learners(self) -> int:
        """The fewest cards on which the learner fits, as a power of two."""
        card, cards = self.cluster.kind, 1
        while (needed := self.recipe.learner_bytes(cards, cards, card)) > ROOM * card.memory_gb * 1e9:
            if 2 * cards > min(self.cluster.gpus, MOST_PROCESSES):
                raise UserError(
                    "the learner does not fit on the cluster",
                    found=f"{needed / 1e9:.0f} GB on each of {counted(cards, 'card')} with {card.memory_gb:g} GB",
                    fix="trainer.gradient_checkpointing=true, a smaller trainer.max_tokens_per_batch, "
                    "an adapter (lora.rank=16), or cards with more memory",
                )
            cards *= 2
        return cards


def limit_of(row: Row, setting: Setting) -> str:
    """The sentence about the largest loss of a step."""
    found = max(_losses(row, setting), key=lambda one: one[0])
    return found[1] if found[0] > LITTLE else "Nothing stands out: samplers and learners are busy."


def _losses(row: Row, setting: Setting) -> Iterator[tuple[float, str]]:
    """Shares of a step that are lost, each with its sentence."""
    outcome, learning, engines = row.outcome, setting.learning, setting.engines
    trajectories = setting.groups * setting.group_size
    tokens = trajectories * setting.trajectories.mean_length
    if trajectories < engines:
        unused = 1 - trajectories / engines
        few = f"A step has {trajectories:,} trajectories for {engines:,} engines"
        yield unused, f"{few}: use a larger trainer.tasks_per_step, or fewer cards."
    idle = 1 - outcome.samplers_busy
    if row.ahead:
        yield idle, f"Samplers wait for the learner {idle:.0%} of the time: it needs more cards, or is the limit."
        waits = outcome.waiting_s / outcome.step_s
        waited = f"Learners wait for trajectories {waits:.0%} of the time"
        yield waits, f"{waited}: a larger schedule.ahead hides the longest."
    else:
        tail = idle - (outcome.learning_s + outcome.transfer_s) / outcome.step_s
        yield tail, f"Engines are idle {tail:.0%} of a step, while the longest trajectories end: use schedule.ahead."
    yield outcome.dropped, f"{outcome.dropped:.0%} of the groups are older than schedule.max_age, and are dropped."
    sent = outcome.transfer_s / outcome.step_s
    yield sent, f"Transfers of weights take {sent:.0%} of a step: use a larger batch, or a faster network."
    ranks = max(1, learning.cards // learning.replica)
    if trajectories < ranks:
        unused = (1 - trajectories / ranks) * outcome.learning_s / outcome.step_s
        yield unused, f"A step has {trajectories:,} trajectories for {ranks:,} learners: most learners have no work."
    computed = learning.compute_s(
        tokens, tokens * setting.trajectories.mean_length, trajectories, tokens / trajectories
    )
    if (gathered := learning.gather_s(tokens)) > computed:
        lost = (1 - computed / gathered) * outcome.learning_s / outcome.step_s
        fix = "use strategy.shard_size within a node, or a larger trainer.max_tokens_per_batch"
        yield lost, f"Learners wait for divided weights: {fix}."
