"""What phases with an explorer share: its reward, its training and its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from rlcore.errors import UserError
from rlcore.types import derive_seed
from rlcore_trainer.algorithms.configured import selected_advantage, selected_loss
from torch import Tensor

from rl_plugin_robotwin.phases import checkpoints
from rl_plugin_robotwin.phases.config import ExplorerConfig, NetworkConfig
from rl_plugin_robotwin.phases.explorer import Acting, ExplorerTraining
from rl_plugin_robotwin.phases.loading import check_environment, loaded_model
from rl_plugin_robotwin.phases.networks import Explorer
from rl_plugin_robotwin.phases.normaliser import RewardNormaliser
from rl_plugin_robotwin.phases.reward_terms import Round
from rl_plugin_robotwin.phases.sequences import Sequences
from rl_plugin_robotwin.phases.trainer import PhaseTrainer
from rl_plugin_robotwin.phases.world_model import Predictions, predictions

Term = Callable[[Round], Tensor]


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
