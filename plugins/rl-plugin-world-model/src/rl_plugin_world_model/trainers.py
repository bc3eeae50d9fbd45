"""The trainers of the three phases, and what those with an explorer share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from rlcore.errors import UserError
from rlcore.types import derive_seed
from rlcore_control.episodes import Decide
from rlcore_trainer.algorithms.configured import selected_advantage, selected_loss
from torch import Tensor

from rl_plugin_world_model import checkpoints
from rl_plugin_world_model.checkpoints import check_environment, loaded_model
from rl_plugin_world_model.config import ExplorerConfig, NetworkConfig
from rl_plugin_world_model.explorer import Acting, ExplorerTraining
from rl_plugin_world_model.models.networks import Explorer
from rl_plugin_world_model.rewards import RewardNormaliser, Round
from rl_plugin_world_model.sequences import Sequences
from rl_plugin_world_model.trainer import PhaseTrainer
from rl_plugin_world_model.world_model import Predictions, evaluate, predictions

Term = Callable[[Round], Tensor]
HOLD = 8
"""Steps for which an action of the probe set is held."""


class TeacherTrainer(PhaseTrainer):
    """Phase 1."""

    phase = "teacher"

    def _decide(self) -> Decide:
        return self._random(hold=1)

    def _learn(self, batch: Sequences | None, numbers: Sequence[int], before: Predictions | None) -> dict[str, float]:
        return self._train_world_model()


class ExploringTrainer(PhaseTrainer):
    """A phase with an explorer."""

    explorer: Explorer

    def _network(self, network: NetworkConfig) -> NetworkConfig:
        """Return the networks of the teacher, if there is one; the explorer's cameras are those of this run.

        Raises:
            UserError: the run itself sets another size.
        """
        teacher, resumed = getattr(self._config, "teacher", None), self._run.resume_from
        if resumed is not None:  # its checkpoint has all that is needed of the teacher, which may be gone
            teacher = str(resumed)
        if teacher is None:
            return network
        where = "trainer.teacher" if resumed is None else "--resume"
        _, found = loaded_model(teacher, where=where, device=self._device)
        for key in NetworkConfig.model_fields.keys() - {"explorer_cameras"}:
            own, its, origin = (
                getattr(network, key),
                getattr(found, key),
                self._run.resolved.origin(("model", "builder", key)),
            )
            if own != its and resumed is None and not origin.startswith(("default", "recipe ")):
                raise UserError(
                    "a phase uses the networks of its teacher",
                    found=f"model.builder.{key}={own}, but {its} in {teacher}",
                    where=origin,
                    fix=f"remove model.builder.{key}, or give a teacher of this size",
                )
        return found.model_copy(update={"explorer_cameras": network.explorer_cameras})

    def _prepare(self) -> None:
        run, config = self._run, cast(ExplorerConfig, self._config)
        self.explorer = self._seeded(Explorer, "explorer")
        for name, module in self._modules().items():
            key = {"world_model": "teacher", "explorer": "student"}[name]
            path = getattr(config, key, None)
            if path is None or run.resume_from is not None:
                continue
            where = f"trainer.{key}={path}"
            model, _ = loaded_model(path, where=where, device=self._device)
            check_environment(model, self.interface, where=where)
            if name not in model:
                found = f"a checkpoint of the phase {model['phase']}"
                fix = "give one of the phases student or adversarial"
                raise UserError(f"the checkpoint has no {name}", found=found, where=where, fix=fix)
            if name == "world_model":
                self.world_model.code.resize(model[name], "code.")
            checkpoints.restore(module, model[name], what=name.replace("_", " "), where=where)
        gamma = getattr(run.options("algorithm.advantage"), "gamma", 1.0)
        self._ppo = ExplorerTraining(
            self.explorer, self.network, config, self._strategy, selected_advantage(run), selected_loss(run), gamma
        )
        self._acting = Acting(self.explorer, self.network, self.interface, derive_seed(run.config.seed, "noise"))
        self._normaliser = RewardNormaliser(config.reward_clip)
        self._terms: list[tuple[str, float, Term]] = [
            (term.id, term.weight, run.load("reward_term", term.id)) for term in config.terms
        ]

    def _state(self) -> dict[str, Any]:
        return {"explorer_optimiser": self._ppo.optimisation.state(), "normaliser": self._normaliser.state_dict()}

    def _load_state(self, state: Mapping[str, Any]) -> None:
        self._ppo.optimisation.restore(state["explorer_optimiser"])
        self._normaliser.load_state_dict(state["normaliser"])

    def _explore(
        self,
        batch: Sequences | None,
        numbers: Sequence[int],
        before: Predictions | None,
        *,
        updates: int,
        trained: bool,
    ) -> dict[str, float]:
        """Reward the episodes of a round, and update the explorer.

        Args:
            batch: the episodes of this process
            numbers: their numbers
            before: predictions of the world model before this round's training
            updates: how often PPO runs on the round; 0 only measures the reward
            trained: whether the world model was trained in this round
        """
        rewards, sums = None, {"steps": 0.0}
        teacher = before.memory if before is not None else None
        if batch is not None and before is not None:
            later = predictions(self.world_model, self.network, batch) if trained else before
            with torch.no_grad():
                memory = self._ppo.memory(batch)
            found = Round(
                error_BT=before.error_BT,
                later_error_BT=later.error_BT,
                uncertainty_BT=before.uncertainty_BT,
                memory=memory,
                teacher_memory=before.memory,
                action_BTA=batch.action_BTA,
                success_BT=batch.success_BT,
            )
            values = {name: (weight, term(found) * batch.valid_BT) for name, weight, term in self._terms}
            self._shown_terms = {name: (weight, value_BT[0].tolist()) for name, (weight, value_BT) in values.items()}
            rewards = torch.stack([weight * value for weight, value in values.values()]).sum(0)
            sums = {"steps": float(batch.valid_BT.sum())}
            sums |= {f"term/{name}": float(value.sum()) for name, (_, value) in values.items()}
            sums |= {"reward/mean": float(rewards.sum())}
        total = self._strategy.processes.sum(sums)
        metrics = {name: value / total["steps"] for name, value in total.items() if name != "steps"}
        scaled = self._normaliser(rewards, batch.valid_BT if batch is not None else None, self._strategy)
        rate = self._rate(cast(ExplorerConfig, self._config).explorer_learning_rate)
        for _ in range(updates):
            found_metrics = self._ppo.train(batch, numbers, scaled, teacher, rate)
            metrics |= {f"explorer/{name}": value for name, value in found_metrics.items()}
        return metrics


class StudentTrainer(ExploringTrainer):
    """Phase 2."""

    phase = "student"
    shown_rate = "explorer_learning_rate"

    def _decide(self) -> Decide:
        return self._acting

    def _learn(self, batch: Sequences | None, numbers: Sequence[int], before: Predictions | None) -> dict[str, float]:
        trained = self._config.train_world_model
        metrics = self._train_world_model() if trained else {}
        return metrics | self._explore(batch, numbers, before, updates=1, trained=trained)


class AdversarialTrainer(ExploringTrainer):
    """Phase 3."""

    phase = "adversarial"

    def _after_restore(self) -> None:
        self._probe = self._fixed("probe", self._config.probe, self._random(hold=HOLD))

    @property
    def _warm(self) -> bool:
        """Whether the warm-up is still in progress, which is counted in steps of the environments."""
        return self._steps < int(self._config.warmup_steps)

    def _decide(self) -> Decide:
        self._randomly = self._warm
        return self._random(hold=1) if self._warm else self._acting

    def _learn(self, batch: Sequences | None, numbers: Sequence[int], before: Predictions | None) -> dict[str, float]:
        relative = self._relative(before)
        metrics = self._train_world_model()
        if self._randomly:
            return {**metrics, "explorer/active": 0.0}
        collapsed = relative < self._config.collapse_error
        if collapsed:
            text = f"the world model's error is {relative:.3g} of a copy's: the explorer waits"
            self._tell(text, level=logging.WARNING)
        updates = 0 if collapsed else self._config.explorer_updates
        metrics |= self._explore(batch, numbers, before, updates=updates, trained=True)
        return {**metrics, "explorer/active": float(not collapsed)}

    def _relative(self, before: Predictions | None) -> float:
        """Return the error of the round's predictions, relative to that of a copy on the held-out episodes."""
        sums = {"error": float(before.error_BT.sum()) if before is not None else 0.0}
        sums |= {"steps": float((before.error_BT != 0).sum()) if before is not None else 0.0}
        total = self._strategy.processes.sum(sums)
        if not hasattr(self, "_copy"):
            self._copy = evaluate(self.world_model, self.network, self._held_out, self._strategy)["copy"]
        return total["error"] / max(1.0, total["steps"]) / self._copy

    def _evaluated(self) -> dict[str, float]:
        found = evaluate(self.world_model, self.network, self._probe, self._strategy)
        text = f"probe     loss {found['loss']:.4f}; copy of the last frame {found['copy']:.4f}"
        self._tell(text, level=logging.INFO)
        return {"world_model/probe": found["loss"], "world_model/probe_copy": found["copy"]}
