"""What the three phases share: rounds of episodes, batches for the world model, outputs and checkpoints.

A round is one episode of each environment of each process. Environment ``i`` of process ``rank`` has the slot ``rank *
num_envs + i``, so a run does not depend on how its slots are divided between processes, up to rounding.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rlcore.errors import DivergenceError, UserError
from rlcore.runs.metrics import STEPS_COVERED
from rlcore.types import derive_seed
from rlcore_control.episodes import Collected, Decide, Episode, EpisodeBuffer, collect
from rlcore_control.vector import environments_of_run
from rlcore_control.videos import write_video
from rlcore_trainer.distributed.strategy import Strategy
from torch import nn

from rl_plugin_world_model import checkpoints
from rl_plugin_world_model.checkpoints import check_environment
from rl_plugin_world_model.config import NetworkConfig, PhaseConfig
from rl_plugin_world_model.explorer import RandomActing
from rl_plugin_world_model.journal import Journal, finite, panels, write_sample
from rl_plugin_world_model.models.networks import Explorer, WorldModel, enough_memory
from rl_plugin_world_model.records import group_of
from rl_plugin_world_model.sequences import Interface, Sequences, coverage, no_episode, note_on_length
from rl_plugin_world_model.world_model import Predictions, WorldModelTraining, evaluate, predictions

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

CALIBRATION = 4
"""Episodes from which the code of the patches is made. They are not trained on."""
VIDEO_RATE = 10
"""Pictures per second of ``videos/``."""


class PhaseTrainer(ABC):
    """A phase. Subclasses say how to act and what to learn from a round.

    Attributes:
        world_model: the world model
        explorer: the explorer; None in phase 1
    """

    phase = ""
    shown_rate = "learning_rate"
    """The learning rate that ``episode_metrics.jsonl`` shows."""
    explorer: Explorer | None = None
    _shown_terms: Mapping[str, tuple[float, Sequence[float]]] = {}
    """Weights and values of the explorer's reward terms in the first episode of the round; empty without it."""

    def __init__(self, run: RunSession) -> None:
        """Create the environments and the networks, or load them from a checkpoint.

        Raises:
            UserError: the environment or the checkpoint cannot be used.
        """
        self._run, self._config = run, run.options("trainer")
        config: PhaseConfig = self._config
        self._strategy: Strategy = run.load("strategy", run.config.strategy.id)(run.options("strategy"))
        self._rank = self._strategy.processes.rank
        self._device = self._strategy.device(run.config.model.device)
        folder = run.directory.path if run.directory is not None and run.is_main else None
        levels = {"console_level": config.console_level, "file_level": config.file_level}
        self._folder, self._journal = folder, Journal(folder, run.say, process=self._rank.index, **levels)
        if run.trial:
            return  # a dry run starts no simulator
        if not run.environments:
            raise UserError("a phase needs an environment", fix="set environment.id, such as flat-arm")
        self.network = self._network(run.options("builder") or NetworkConfig())
        self._slots = self._rank.world_size * config.num_envs
        self._environments, how = environments_of_run(run, run.environments[0].name, config.num_envs, config.vector)
        self._failures: Mapping[int, Exception] = {}
        self._tell(f"envs      {how}", level=logging.INFO)
        vector = self._environments
        self.interface = Interface(vector.observation_space, vector.action_space, self.network)
        self._buffers = [
            EpisodeBuffer(
                max_episodes=max(1, config.buffer_episodes // self._slots),
                max_transitions=max(1, config.buffer_steps // self._slots),
            )
            for _ in range(config.num_envs)
        ]
        self.world_model = self._seeded(WorldModel, "world model")
        self._done = self._steps = self._updates = self._saved = self._logged = 0
        self._prepare()
        self._training = WorldModelTraining(self.world_model, self.network, config, self._strategy)
        if not self.world_model.code.fitted and run.resume_from is None:
            self._calibrate()
        if run.resume_from is not None:
            self._restore(run.resume_from)
        self.world_model.eval()
        self._held_out = self._fixed("held out", config.held_out, self._random(hold=1))
        if note := note_on_length(self._held_out, config.steps_per_episode):
            self._tell(note, level=logging.WARNING)
        self._after_restore()

    # What subclasses define

    def _network(self, network: NetworkConfig) -> NetworkConfig:
        """Return the configuration of the networks."""
        return network

    def _prepare(self) -> None:  # noqa: B027 (optional)
        """Create further networks and their optimisers, before a checkpoint is restored."""

    def _after_restore(self) -> None:  # noqa: B027 (optional)
        """Prepare what depends on restored networks."""

    @abstractmethod
    def _decide(self) -> Decide:
        """Return the policy of the next round."""

    @abstractmethod
    def _learn(self, batch: Sequences | None, numbers: Sequence[int], before: Predictions | None) -> dict[str, float]:
        """Learn from a round, and return metrics.

        Args:
            batch: this process's episodes of the round; None if it has none
            numbers: their numbers
            before: the predictions of the world model for them
        """

    def _state(self) -> dict[str, Any]:
        """Return further state for ``training_state.pt``."""
        return {}

    def _load_state(self, state: Mapping[str, Any]) -> None:  # noqa: B027 (optional)
        """Restore `_state`."""

    def _evaluated(self) -> dict[str, float]:
        """Return further metrics of an evaluation."""
        return {}

    # The run

    def train(self) -> Mapping[str, float]:
        """Collect and learn until the last episode or until a stop is requested, and return the last metrics."""
        metrics: dict[str, float] = {}
        started, began = time.perf_counter(), self._steps
        self._journal.rewind(self._done)
        if not self._journal.prints(logging.INFO):
            self._run.trackers = [pair for pair in self._run.trackers if pair[0] != "console"]
        try:
            if not self._done:
                metrics = self._evaluate()
                self._run.log(0, metrics)
            while self._done < self._config.episodes and not self._strategy.processes.any(self._run.stop_requested):
                last, begun = self._done, time.perf_counter()
                metrics = self._round()
                metrics["time/step_s"] = time.perf_counter() - begun
                metrics["fps"] = (self._steps - began) / (time.perf_counter() - started)
                self._report(metrics)
                saves = self._due(last, self._run.config.checkpoint.every)
                if saves or self._due(last, self._config.log_every):
                    self._log(metrics)
                if saves:
                    self._save()
            if self._saved != self._done:
                self._log(metrics)
                self._save()
        finally:
            self._environments.close()
        return metrics

    @enough_memory()
    def _round(self) -> dict[str, float]:
        first, self._shown_terms = self._done, {}
        slots = range(self._rank.index * self._config.num_envs, (self._rank.index + 1) * self._config.num_envs)
        numbers = [first + slot for slot in slots if first + slot < self._config.episodes]
        collected = self._collect(numbers, self._decide(), self._run.config.seed)
        for episode in collected.episodes:
            self._buffers[(episode.number - first) % self._config.num_envs].add(episode)
        episodes = collected.episodes
        batch = self.interface.sequences(episodes, self._device) if episodes else None
        sums = {"episodes": float(len(episodes)), "failures": float(len(collected.failures))}
        sums |= {"steps": float(sum(map(len, episodes))), "reward": sum(float(one.rewards_T.sum()) for one in episodes)}
        sums |= {"success": float(sum(bool(one.success) for one in episodes))}
        before = predictions(self.world_model, self.network, batch) if batch is not None else None
        sums |= {
            "error": float(before.error_BT.sum()) if before else 0.0,
            "right": float(before.right_BT.sum()) if before else 0.0,
        }
        total = self._strategy.processes.sum(sums)
        if not total["episodes"]:
            raise no_episode(self._failures)
        self._done = min(first + self._slots, self._config.episodes)
        self._steps += int(total["steps"])
        metrics = self._learn(batch, [one.number for one in episodes], before)
        metrics |= {
            "world_model/new_error": total["error"] / total["steps"],
            "world_model/new_accuracy": total["right"] / total["steps"],
            "coverage": coverage(self.interface, self._strategy, episodes),
            "episode_reward": total["reward"] / total["episodes"],
            "success": total["success"] / total["episodes"],
            "environment/failures": total["failures"],
            "total_steps": float(self._steps),
        }
        if not all(map(math.isfinite, metrics.values())):
            bad = [name for name, value in metrics.items() if not math.isfinite(value)]
            raise DivergenceError("training diverged", found=", ".join(bad), fix="lower the learning rates")
        if self._due(first, self._config.evaluate_every):
            metrics |= self._evaluate()
        self._show(first, episodes)
        self._tell(f"round     episodes {first} to {self._done - 1}: {total['steps']:.0f} steps", level=logging.DEBUG)
        return metrics

    def _collect(self, numbers: Sequence[int], decide: Decide, seed: int) -> Collected:
        found = collect(self._environments, numbers, decide, seed=seed, limit=self._config.steps_per_episode)
        for number, failure in found.failures.items():
            self._journal.tell(logging.WARNING, f"episode {number} failed: {failure}")
        self._failures = found.failures or self._failures
        return found

    def _fixed(self, name: str, count: int, decide: Decide) -> list[Sequences]:
        """Collect this process's share of a fixed set of episodes."""
        numbers = list(range(count))[self._rank.index :: self._rank.world_size]
        seed = derive_seed(self._run.config.seed, name) % 2**31
        batches = []
        for start in range(0, len(numbers), self._config.num_envs):
            found = self._collect(numbers[start : start + self._config.num_envs], decide, seed)
            if found.episodes:
                batches.append(self.interface.sequences(found.episodes, self._device))
        if not self._strategy.processes.sum({"batches": float(len(batches))})["batches"]:
            raise no_episode(self._failures)
        return batches

    def _random(self, *, hold: int) -> RandomActing:
        scale = getattr(self._config, "action_scale", 1.0)
        return RandomActing(self.interface, derive_seed(self._run.config.seed, "random", hold), scale, hold)

    def _calibrate(self) -> None:
        """Make the code of the patches in the main process."""
        seed = derive_seed(self._run.config.seed, "code") % 2**31
        code = self.world_model.code

        def made() -> dict[str, torch.Tensor]:
            found: list[Episode] = []
            for start in range(0, CALIBRATION, self._config.num_envs):
                numbers = list(range(start, min(CALIBRATION, start + self._config.num_envs)))
                found += self._collect(numbers, self._random(hold=4), seed).episodes
            if not found:
                raise no_episode(self._failures)
            rows = [torch.from_numpy(one.observations[self.network.target]) for one in found]
            pairs = (torch.cat([row[:-1] for row in rows]), torch.cat([row[1:] for row in rows]))
            code.cpu().fit(torch.cat(rows), pairs, seed=seed)
            return dict(code.state_dict())

        state = self._strategy.processes.from_main(made)
        code.resize(state, "")
        code.load_state_dict(state)
        code.to(self._device)

    def _train_world_model(self) -> dict[str, float]:
        """Train the world model on batches of stored episodes of all processes."""
        config, totals = self._config, dict[str, float]()
        for _ in range(config.passes):
            chosen = []
            for j in range(config.batch_size):
                slot = (self._updates * config.batch_size + j) % self._slots
                mine = slot - self._rank.index * config.num_envs
                if 0 <= mine < config.num_envs and len(self._buffers[mine]):
                    generator = np.random.default_rng(derive_seed(self._run.config.seed, "batch", self._updates, j))
                    chosen.append(list(self._buffers[mine])[generator.integers(len(self._buffers[mine]))])
            self._updates += 1
            batch = self.interface.sequences(chosen, self._device) if chosen else None
            for name, value in self._training.train(batch, self._rate(config.learning_rate)).items():
                totals[name] = totals.get(name, 0.0) + value / (1 if name == "updates" else config.passes)
        return {f"world_model/{name}": value for name, value in totals.items()}

    def _rate(self, peak: float) -> float:
        """Return the learning rate of the round, which follows from the number of episodes before it."""
        config: PhaseConfig = self._config
        return config.rate(peak, max(0, self._done - self._slots))

    def _evaluate(self) -> dict[str, float]:
        found = evaluate(self.world_model, self.network, self._held_out, self._strategy)
        metrics = {f"world_model/held_out_{name}": value for name, value in found.items()}
        line = f"held out  loss {found['loss']:.4f}; copy of the last frame {found['copy']:.4f}, "
        self._tell(f"{line}marginal {found['marginal']:.4f}", level=logging.INFO)
        return {**metrics, **self._evaluated()}

    # Outputs

    def _due(self, last: int, every: int) -> bool:
        """Return whether the round passed a multiple of ``every`` episodes or is the last one; never if it is 0."""
        return bool(every) and (self._done // every > last // every or self._done == self._config.episodes)

    def _tell(self, text: str, *, level: int) -> None:
        """Tell what is the same in all processes."""
        if self._run.is_main:
            self._journal.tell(level, text)

    def _log(self, metrics: Mapping[str, float]) -> None:
        """Log the metrics of the last round, once."""
        if self._logged != self._done:
            self._run.log(self._done, {**metrics, STEPS_COVERED: float(self._done - self._logged)})
            self._logged = self._done

    def _report(self, metrics: Mapping[str, float]) -> None:
        terms = {name.removeprefix("term/"): value for name, value in metrics.items() if name.startswith("term/")}
        self._journal.write(
            {
                "phase": self.phase,
                "episode": self._done,
                "avg_loss": metrics.get("world_model/loss", metrics["world_model/new_error"]),
                "avg_acc": metrics["world_model/new_accuracy"] if self.world_model.code.tokens else None,
                "episode_reward": metrics.get("reward/mean", metrics["episode_reward"]),
                "total_steps": self._steps,
                "lr": self._rate(getattr(self._config, self.shown_rate)),
                "timestamp": time.time(),
                "success": metrics["success"],
                "reward_terms": terms,
                "fps": metrics["fps"],
                "ranks": self._rank.world_size,
            }
        )

    def _show(self, last: int, episodes: Sequence[Episode]) -> None:
        """Write the picture and the video of the first episode of the round, and store it as a trajectory."""
        sample, video = self._due(last, self._config.sample_every), self._due(last, self._config.video_every)
        if self._folder is None or not episodes or not (sample or video):
            return
        episode, camera, target = episodes[0], self.network.cameras[0], self.network.target
        errors = [math.nan] * len(episode)
        try:
            batch = self.interface.sequences([episode], self._device)
            found = predictions(self.world_model, self.network, batch, pictures=True)
            assert found.pictures is not None
            errors = found.error_BT[0].tolist()
            shown = [finite(found.pictures[0, t].cpu().numpy(), errors[t]) for t in range(len(episode))]
        except RuntimeError as error:  # such as too little memory: the phase goes on, and the panel says so
            self._tell(f"no prediction for episode {episode.number}: {error}", level=logging.WARNING)
            shown = [None] * len(episode)
        seen, real = episode.observations[camera], episode.observations[target]
        frames = [panels(seen[t], real[t + 1], shown[t]) for t in range(len(episode))]
        name = f"episode_{self._done:06d}"
        if sample:
            write_sample(self._folder / "samples" / f"{name}.png", frames)
            group = group_of(episode, target=target, predicted=shown, errors=errors, terms=self._shown_terms)
            self._run.record(self._done, "train", [group])
        if video:
            write_video(self._folder / "videos" / f"{name}.mp4", frames, rate=VIDEO_RATE)

    # Checkpoints

    def _modules(self) -> dict[str, nn.Module]:
        found: dict[str, nn.Module] = {"world_model": self.world_model}
        return found | ({"explorer": self.explorer} if self.explorer is not None else {})

    def _save(self) -> None:
        stored, self._saved = checkpoints.stored_episodes(self._buffers, self._strategy), self._done
        if self._folder is None:
            return
        model: dict[str, Any] = {name: module.state_dict() for name, module in self._modules().items()}
        model |= {"network": self.network.model_dump(), "sizes": list(self.interface.sizes), "phase": self.phase}
        state = {
            "episode": self._done,
            "total_steps": self._steps,
            "updates": self._updates,
            "optimiser": self._training.optimisation.state(),
            "buffers": stored,
            "config": self._config.model_dump(mode="json"),
            "versions": {"torch": str(torch.__version__)},
            **self._state(),
        }
        path = checkpoints.save(self._folder, self._done, model, state, keep=self._run.config.checkpoint.keep)
        self._run.checkpoint_saved(self._done, path)
        self._tell(f"saved     checkpoint-{self._done}", level=logging.INFO)

    def _restore(self, folder: Path) -> None:
        model = checkpoints.read(folder, checkpoints.MODEL, where="--resume", device=self._device)
        state = checkpoints.read(folder, checkpoints.STATE, where="--resume", device=self._device)
        check_environment(model, self.interface, where=str(folder))
        for name, module in self._modules().items():
            if name == "world_model":
                self.world_model.code.resize(model[name], "code.")
            checkpoints.restore(module, model[name], what=name.replace("_", " "), where=str(folder))
        self._done, self._steps, self._updates = (state[name] for name in ("episode", "total_steps", "updates"))
        self._saved = self._logged = self._done
        self._training.optimisation.restore(state["optimiser"])
        checkpoints.restore_episodes(self._buffers, state["buffers"], self._strategy, where=str(folder))
        self._load_state(state)

    @enough_memory()
    def _seeded(self, kind: Any, name: str) -> Any:
        """Return a new network with weights that follow from the run's seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self._run.config.seed, name))
            return kind(self.network, self.interface.sizes).to(self._device)
