from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlcore.config.schema import RunConfig
from rlcore.errors import PluginError
from rlcore.plugins.registry import Registry
from rlcore.runs.progress import Meter, silent
from rlcore.types import (
    Message,
    Task,
)
from rlcore_models.lora_config import LoraTable
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.config import CurriculumConfig, PolicyGradientConfig, WarmupConfig
from rlcore_trainer.distributed.strategies.single import SingleProcess, SingleProcessConfig
from rlcore_trainer.learner.critic_config import CriticConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

sys.path.insert(0, str(Path(__file__).parent))  # for what several test files share
from bandit_sampler import BanditSampler

os.environ.pop("UV_RUN_RECURSION_DEPTH", None)  # messages name commands as without uv

VOCABULARY = 32
REGISTRY = Registry()


def algorithm_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """The table ``[algorithm]`` and those of its components, as a run has them."""
    table = AlgorithmConfig(**values)
    options: dict[str, Any] = {"algorithm": table}
    for part, kind in AlgorithmConfig.COMPONENTS.items():
        chosen = getattr(table, part)
        model = REGISTRY.config_model(kind, chosen.id)
        options[f"algorithm.{part}"] = None if model is None else model(**chosen.own)
    return options


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def qwen2() -> Callable[..., Qwen2ForCausalLM]:
    """A new tiny Qwen2 with random weights."""

    def build(seed: int = 0, **options: Any) -> Qwen2ForCausalLM:
        torch.manual_seed(seed)
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = Qwen2Config(vocab_size=VOCABULARY, num_key_value_heads=2, **{**sizes, **options})
        return Qwen2ForCausalLM(config).eval()

    return build


@pytest.fixture(scope="session")
def qwen3() -> Callable[..., Qwen3ForCausalLM]:
    """A new tiny Qwen3 with random weights."""

    def build(seed: int = 0, **options: Any) -> Qwen3ForCausalLM:
        torch.manual_seed(seed)
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = Qwen3Config(vocab_size=VOCABULARY, num_key_value_heads=2, head_dim=16, **{**sizes, **options})
        return Qwen3ForCausalLM(config).eval()

    return build


def write_tokenizer(folder: Path, words: int = VOCABULARY) -> None:
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture
def model_folder(tmp_path: Path, qwen2: Callable[..., Qwen2ForCausalLM]) -> Path:
    """A Hugging Face folder with a tiny Qwen2 and its tokenizer."""
    folder = tmp_path / "model"
    qwen2(tie_word_embeddings=True).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


class Bandit:
    """Stands in for a `rlcore.session.session.RunSession`: tasks of one choice between a good and a bad token."""

    def __init__(self, folder: Path, directory: Path | None, tables: dict[str, Any], resume_from: Path | None) -> None:
        self._folder = folder
        self.resume_from = resume_from
        self.directory = SimpleNamespace(path=directory) if directory else None
        self._options = {
            "trainer": PolicyGradientConfig(
                **{"steps": 4, "tasks_per_step": 4, "learning_rate": 0.01, **tables.pop("trainer", {})}
            ),
            # The engine's log-probabilities are of two tokens only: the gap to the policy's is meant.
            **algorithm_options({"rollout_importance_sampling": {"mode": "none"}, **tables.pop("algorithm", {})}),
            "critic": CriticConfig(**tables.pop("critic", {})),
            "curriculum": CurriculumConfig(**tables.pop("curriculum", {})),
            "warmup": WarmupConfig(**tables.pop("warmup", {})),
            "strategy": SingleProcessConfig(),
            "lora": LoraTable(**tables.pop("lora", {})),
        }
        self.fails: Callable[[Task, int], bool] = tables.pop("fails", lambda task, sibling: False)
        self.engine_fails: Callable[[int], bool] = tables.pop("engine_fails", lambda request: False)
        self.sync_fails: Callable[[int], bool] = tables.pop("sync_fails", lambda transfer: False)
        self.forgotten: str = tables.pop("forgotten", "")
        """Part of the names of the tensors that the transfer of weights forgets."""
        self.stop_after: int | None = tables.pop("stop_after", None)
        values: dict[str, Any] = {
            "model": {"path": str(folder), "device": "cpu"},
            "environment": {"id": "bandit"},
            "reward": [{"id": "good"}],
            "evaluation": {"every": 2},
        }
        self.config = RunConfig(**{**values, **tables})
        self.resolved = SimpleNamespace(config=self.config, options=self._options, environments=())
        self.logged: dict[int, dict[str, float]] = {}
        self.recorded: list[tuple[int, str]] = []
        self.said: list[str] = []
        self.saved: list[int] = []
        self.dataset = self

    def tasks(self, split: str) -> list[Task]:
        count = 10 if split == "train" else 3
        return [Task(id=str(i), messages=(Message(role="user", content=f"w{i}"),)) for i in range(count)]

    def usable_tasks(self, split: str) -> list[Task]:
        return self.tasks(split)

    def demonstrations(self, count: int, *, seed: int) -> list[Any]:
        return [SimpleNamespace(messages=(), tools=())] * count

    def options(self, table: str) -> Any:
        return self._options[table]

    def load(self, kind: str, id: str) -> Any:
        return SingleProcess if kind == "strategy" else REGISTRY.load(kind, id)

    def model_folder(self) -> Path:
        return self._folder

    def chat_format(self, folder: Path) -> Any:
        raise PluginError("tasks of one choice have no chat format")

    def sampler(self, source: Any) -> BanditSampler:
        self.bandit = BanditSampler(self, source)
        return self.bandit

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self.logged[step] = dict(metrics)

    def record(self, step: int, purpose: str, groups: Any) -> None:
        self.recorded.append((step, purpose))

    def progress(self, phase: str, total: int, unit: str) -> Meter:
        return Meter(phase, total, unit, silent)

    def say(self, text: str) -> None:
        self.said.append(text)

    def update(self, text: str) -> None:
        self.said.append(text)

    @property
    def stop_requested(self) -> bool:
        return self.stop_after is not None and max(self.logged, default=0) >= self.stop_after

    def checkpoint_saved(self, step: int, path: Path) -> None:
        assert (path / "trainer.json").is_file()
        self.saved.append(step)


@pytest.fixture
def bandit(model_folder: Path, tmp_path: Path) -> Callable[..., Bandit]:
    """Makes a run of the two-token bandit; keyword arguments are tables."""

    def make(directory: str | None = "run", resume_from: Path | None = None, **tables: Any) -> Bandit:
        return Bandit(model_folder, tmp_path / directory if directory else None, tables, resume_from)

    return make
