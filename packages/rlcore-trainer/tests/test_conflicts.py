from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore.checks import raise_failures
from rlcore.config.messages import ProblemsError
from rlcore.config.schema import RunConfig
from rlcore.plugins.registry import Registry
from rlcore_models.lora_config import LoraTable
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.checks.conflicts import check, comparable
from rlcore_trainer.config import PolicyGradientConfig, WarmupConfig
from rlcore_trainer.learner.critic_config import CriticConfig

REGISTRY = Registry()
NEEDS_TOOLS = pytest.mark.skipif(find_spec("rl_plugin_gsm8k_tools") is None, reason="rl-plugin-gsm8k-tools is missing")


def algorithm_options(values: dict[str, Any]) -> dict[str, Any]:
    table = AlgorithmConfig(**values)
    parts: dict[str, Any] = {}
    for part, kind in AlgorithmConfig.COMPONENTS.items():
        chosen = getattr(table, part)
        model = REGISTRY.config_model(kind, chosen.id)
        parts[f"algorithm.{part}"] = None if model is None else model(**chosen.own)
    return {"algorithm": table, **parts}


def run(**tables: Any) -> Any:
    options = {
        **algorithm_options(tables.get("algorithm", {})),
        "critic": CriticConfig(**tables.get("critic", {})),
        "lora": LoraTable(**tables.get("lora", {})),
        "trainer": PolicyGradientConfig(**tables.get("trainer", {})),
        "warmup": WarmupConfig(**tables.get("warmup", {})),
        "environment": SimpleNamespace(**tables.get("environment", {})),
    }
    values = {"model": {"path": "organisation/policy"}, "environment": {"id": "e"}, "reward": [{"id": "r"}]}
    config = RunConfig(**values, rollout=tables.get("rollout", {}))
    rows = tables.get("rows", [SimpleNamespace(messages=())])
    return SimpleNamespace(
        config=config,
        environments=(),
        resolved=SimpleNamespace(
            config=config,
            options=options,
            environments=(
                SimpleNamespace(id="gsm8k-tools", options=options["environment"], rewards=(SimpleNamespace(id="r"),)),
            ),
            origin=lambda path: f"file:{'/'.join(path)}",
        ),
        registry=REGISTRY,
        dataset=SimpleNamespace(tasks=lambda split: [], demonstrations=lambda count, seed: rows),
        resume_from=None,
        options=lambda table: options[table],
        load=REGISTRY.load,
    )


def problems(**tables: Any) -> dict[str, str]:
    """Return the reason and fix of each conflict by key."""
    return {one.key: f"{one.text}\nfix: {one.fix}" for one in check(run(**tables)) if one.status == "fail"}


def notes(**tables: Any) -> list[str]:
    """Return what a run without conflicts prints."""
    resolved = (made := run(**tables)).resolved
    return raise_failures(resolved, check(made))


def test_a_warm_up_needs_demonstrations() -> None:
    assert problems(warmup={"steps": 9}, rows=[]).keys() == {"warmup.steps"}
    assert problems(rows=[]).keys() == problems(warmup={"steps": 9}).keys() == set()


GAE = {"advantage": "gae"}
COPY = {"model": "copy"}
ROLLOUT_IS = "algorithm.rollout_importance_sampling"
DISCOUNTED = {"id": "reinforce-plus-plus", "gamma": 0.9}
IN_REWARD = {"coefficient": 0.1, "target": "reward"}
SAMPLED = {"teacher": "organisation/teacher", "divergence": "sampled"}
MASK = {"rollout_importance_sampling": {"mode": "mask"}}


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"algorithm": GAE, "critic": COPY},
        {"algorithm": GAE, "critic": {"model": "example/value-model"}},
        {"algorithm": {"advantage": {"id": "gae", "gamma": 0.99, "whiten": False}}, "critic": {"model": "head"}},
        {"algorithm": {"loss": "gspo"}},
        {"algorithm": {"kl": {"coefficient": 0.1, "controller": "adaptive", "target_kl": 0.5}}},
        {"algorithm": {"kl": {"coefficient": 0.1, "target": "reward"}}},
        {"algorithm": {"overlong": {"buffer": 255}}},
        {"algorithm": {"overlong": {"buffer": 511}}, "environment": {"max_turns": 2}},
        {"algorithm": {"filter": {"rank_by_std": True, "oversample": 1.5}}},
        {"algorithm": {"filter": {"metric": "all-wrong"}, "advantage": "remax"}, "rollout": {"group_size": 1}},
        {"algorithm": {"advantage": "reinforce-plus-plus"}, "rollout": {"group_size": 1}},
        {"rollout": {"temperature": 0.7}},
        {"algorithm": {"rollout_importance_sampling": {"mode": "none"}}, "rollout": {"temperature": 0.7}},
        {"algorithm": {"rollout_importance_sampling": {"mode": "mask", "low": 0.1, "high": 3.0, "level": "sequence"}}},
        {"algorithm": {"overlong": {"buffer": 5, "penalty": 2.0}, "max_response_tokens": 99}},
        {"algorithm": {"aggregation": "seq-mean-token-sum-norm", "max_response_tokens": 99}},
        {"algorithm": {"filter": {"metric": "reward", "when_short": "skip", "max_extra_batches": 1}}},
        {"algorithm": {"filter": {"oversample": 2.0, "when_short": "skip"}}},
        {"algorithm": {"filter": {"metric": "reward", "score": "r#2/part", "exclude": ["length", "tool_errors"]}}},
        {"algorithm": GAE, "critic": {**COPY, "warmup_steps": 4}, "trainer": {"steps": 5}},
        {"algorithm": {"kl": {"estimator": "k1", "target": "reward", "reference": "no/folder"}}},
    ],
)
def test_compatible_settings_are_accepted(tables: dict[str, Any]) -> None:
    assert problems(**tables) == {}


def test_explicit_default_values_are_accepted() -> None:
    """The configuration of a resumed run contains them."""
    algorithm = AlgorithmConfig(advantage="rloo", loss="sapo")
    assert problems(algorithm=algorithm.model_dump(), critic=CriticConfig().model_dump()) == {}


@pytest.mark.parametrize(
    ("tables", "path", "words"),
    [
        ({"algorithm": GAE}, "algorithm.advantage", ("critic.model=copy", "critic.model=head")),
        ({"critic": COPY}, "critic.model", ("grpo", "algorithm.advantage=gae")),
        ({"critic": {"clip": 0.2}}, "critic.clip", ("critic.model=copy",)),
        (
            {"algorithm": GAE, "critic": {"model": "head", "learning_rate": 0.1}},
            "critic.learning_rate",
            ("critic.coefficient",),
        ),
        ({"algorithm": GAE, "critic": {**COPY, "coefficient": 1.0}}, "critic.coefficient", ("critic.learning_rate",)),
        ({"algorithm": GAE, "critic": {"model": "./no/folder"}}, "critic.model", ("no model folder",)),
        ({"algorithm": GAE, "critic": {"model": "builtin:tiny-qwen2"}}, "critic.model", ("built-in",)),
        *(
            (
                {"algorithm": {"advantage": id}, "rollout": {"group_size": 1}},
                "rollout.group_size",
                (id, "reinforce-plus-plus, remax or gae"),
            )
            for id in ("grpo", "dr-grpo", "rloo", "opo", "pass-at-k", "reinforce-plus-plus-baseline")
        ),
        (
            {"algorithm": {"filter": {"metric": "reward"}, "advantage": "remax"}, "rollout": {"group_size": 1}},
            "algorithm.filter.metric",
            ("rollout.group_size=2",),
        ),
        ({"algorithm": {"filter": {"rank_by_std": True}}}, "algorithm.filter.rank_by_std", ("oversample=1.5",)),
        ({"algorithm": {"kl": {"controller": "adaptive"}}}, "algorithm.kl.controller", ("would stay 0",)),
        ({"algorithm": {"kl": {"coefficient": 0.1, "horizon": 5}}}, "algorithm.kl.horizon", ("controller=adaptive",)),
        (
            {"algorithm": {"kl": {"coefficient": 0.1, "importance_weighted": True, "target": "reward"}}},
            "algorithm.kl.importance_weighted",
            ("algorithm.kl.target=loss",),
        ),
        (
            {"algorithm": {"kl": {"coefficient": 0.1, "reference": "no/folder"}}},
            "algorithm.kl.reference",
            ("no such folder",),
        ),
        ({"algorithm": {"overlong": {"buffer": 256}}}, "algorithm.overlong.buffer", ("limit is 256 tokens",)),
        (
            {"algorithm": {"overlong": {"buffer": 64}, "max_response_tokens": 64}},
            "algorithm.overlong.buffer",
            ("limit is 64 tokens",),
        ),
        ({"algorithm": {"overlong": {"penalty": 2.0}}}, "algorithm.overlong.penalty", ("overlong.buffer",)),
        ({"algorithm": {"max_response_tokens": 99}}, "algorithm.max_response_tokens", ("max_new_tokens",)),
        ({"algorithm": {"filter": {"when_short": "skip"}}}, "algorithm.filter.when_short", ("without a filter",)),
        (
            {"algorithm": {"filter": {"metric": "accuracy", "score": "judge/accuracy"}}},
            "algorithm.filter.score",
            ("no reward 'judge'", "ID/COMPONENT"),
        ),
        ({"algorithm": {"filter": {"score": "r"}}}, "algorithm.filter.score", ("filter.metric=accuracy",)),
        (
            {"algorithm": {"rollout_importance_sampling": {"low": 0.1}}},
            "algorithm.rollout_importance_sampling.low",
            ("mode=mask",),
        ),
        *(
            (
                {"algorithm": {"rollout_importance_sampling": {"mode": "none", **key}}},
                f"{ROLLOUT_IS}.{next(iter(key))}",
                ("none",),
            )
            for key in ({"high": 3.0}, {"low": 0.1}, {"level": "sequence"})
        ),
        (
            {"algorithm": GAE, "critic": {**COPY, "warmup_steps": 5}, "trainer": {"steps": 5}},
            "critic.warmup_steps",
            ("5 steps", "fewer than 5"),
        ),
        (
            {"algorithm": {"loss": "vespo", "rollout_importance_sampling": {"level": "sequence"}}},
            f"{ROLLOUT_IS}.level",
            ("vespo", "token"),
        ),
        (
            {"algorithm": {"kl": {"coefficient": 0.1, "estimator": "k3+", "importance_weighted": True}}},
            "algorithm.kl.importance_weighted",
            ("second time", "algorithm.kl.estimator=k3"),
        ),
        *(
            (
                {"algorithm": {"rollout_importance_sampling": {"mode": "mask"}}, "rollout": rollout},
                f"{ROLLOUT_IS}.mode",
                ("1",),
            )
            for rollout in ({"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 5})
        ),
    ],
)
def test_conflict_names_its_key_and_fix(tables: dict[str, Any], path: str, words: tuple[str, ...]) -> None:
    found = problems(**tables)
    assert list(found) == [path]
    assert "\nfix: " in found[path]
    assert all(word in found[path] for word in words)


def test_all_conflicts_are_reported_at_once_with_their_origin() -> None:
    with pytest.raises(ProblemsError) as caught:
        notes(algorithm={"advantage": "gae", "max_response_tokens": 9, "kl": {"controller": "adaptive"}})
    text = str(caught.value)
    assert text.startswith("3 problems")
    for path in ("algorithm/advantage/id", "algorithm/max_response_tokens", "algorithm/kl/controller"):
        assert f"from file:{path}" in text


def test_algorithm_from_an_import_path_declares_its_needs(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from rlcore_trainer.algorithms import AdvantageTraits\n"
        "def plain(inputs): ...\n"
        "class Mine:\n"
        "    traits = AdvantageTraits(needs_critic=True, compares_siblings=True)\n"
        "    def __call__(self, inputs): ...\n",
        encoding="utf-8",
    )
    mine = {"advantage": f"{file}:Mine"}
    assert problems(algorithm=mine, critic=COPY) == {}
    assert list(problems(algorithm=mine)) == ["algorithm.advantage"]
    assert list(problems(algorithm=mine, critic=COPY, rollout={"group_size": 1})) == ["rollout.group_size"]
    plain = {"advantage": f"{file}:plain", "loss": f"{file}:plain"}
    assert problems(algorithm=plain, rollout={"group_size": 1}) == {}
    assert list(problems(algorithm=plain, critic=COPY)) == ["critic.model"]


def test_reference_folder_without_a_model_is_rejected(tmp_path: Path) -> None:
    algorithm = {"kl": {"coefficient": 0.1, "reference": str(tmp_path)}}
    assert "has no config.json" in problems(algorithm=algorithm)["algorithm.kl.reference"]
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    assert problems(algorithm=algorithm) == {}


def test_trainer_with_its_own_algorithm_table_is_not_checked() -> None:
    other = run()
    other.resolved.options["algorithm"] = SimpleNamespace(advantage="mine")
    assert list(check(other)) == []


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"algorithm": {"kl": {"coefficient": 0.1, "estimator": "k1"}}}, "k1 as a loss"),
        ({"algorithm": {"loss": {"id": "gspo", "clip_high": 0.2}}}, "practically never"),
        ({"algorithm": {"loss": "gspo", "aggregation": "token-mean"}}, "long trajectories more weight"),
        ({"rollout": {"temperature": 0.7}}, "neither weighted nor measured"),
        ({"trainer": {"updates_per_rollout": 4, "epochs": 2}}, "8 updates on each rollout"),
        ({"algorithm": GAE, "critic": {**COPY, "warmup_steps": 3}}, "only the critic is trained for the first 3 steps"),
        ({"algorithm": {"shuffle_rewards": True}}, "cannot learn"),
        ({"algorithm": {"kl": {"estimator": "k1"}}}, "kl.estimator has no effect"),
        ({"algorithm": {"kl": {"estimator": "k1", "target": "reward"}}}, "kl.estimator and kl.target have no effect"),
        ({"warmup": {"steps": 9}}, "on demonstrations for 9 steps"),
        ({"algorithm": {"filter": {"max_extra_batches": 9}}}, "filter.max_extra_batches has no effect"),
        (
            {"algorithm": {"filter": {"exclude": ["length"]}, "overlong": {"mask_truncated": True}}},
            "overlong.mask_truncated has no effect",
        ),
        ({"algorithm": {**GAE, "loss": "gspo"}, "critic": COPY}, "gspo-token gives each token its own"),
        ({"algorithm": {**GAE, "loss": "geo-mean"}, "critic": COPY}, "geo-mean trains all with their mean"),
        ({"algorithm": {"advantage": DISCOUNTED, "loss": "gspo"}}, "gspo trains all with their mean"),
        ({"algorithm": {"advantage": "remax", "loss": "gspo", "turn_rewards": "add"}}, "gspo-token"),
        ({"algorithm": {"advantage": "grpo-turn", "loss": "gspo", "turn_rewards": "only"}}, "gspo-token"),
        ({"algorithm": {"advantage": "remax", "loss": "gspo", "kl": IN_REWARD}}, "gspo-token"),
        pytest.param(
            *({"algorithm": {"advantage": "optimal-token-baseline", "loss": "gspo"}}, "gspo-token"), marks=NEEDS_TOOLS
        ),
        pytest.param(
            *({"algorithm": {"loss": "gspo", "distillation": SAMPLED}}, "distillation gives each token"),
            marks=NEEDS_TOOLS,
        ),
    ],
)
def test_unexpected_settings_give_a_one_sentence_note(tables: dict[str, Any], words: str) -> None:
    found = notes(**tables)
    assert len(found) == 1
    assert words in found[0]
    assert "\n" not in found[0]


@pytest.mark.parametrize(
    "algorithm",
    [
        {"loss": "gspo"},
        {"loss": "gspo", "kl": IN_REWARD},
        {"loss": "gspo", "turn_rewards": "add"},
        {"loss": "gspo", "advantage": "reinforce-plus-plus"},
        {"loss": "luspo"},
        {"loss": "vespo", "advantage": DISCOUNTED},
        {"loss": "gspo-token", "advantage": DISCOUNTED},
        {"loss": "clip", "advantage": DISCOUNTED},
    ],
)
def test_one_advantage_per_trajectory_needs_no_note(algorithm: dict[str, Any]) -> None:
    assert notes(algorithm=algorithm) == []


def test_defaults_give_no_notes() -> None:
    assert notes() == []
    weighted = {"coefficient": 0.1, "estimator": "k1", "importance_weighted": True}
    assert notes(algorithm={"kl": weighted}) == []


def test_only_full_distribution_samples_at_temperature_1_are_comparable() -> None:
    whole = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
    assert comparable(run(rollout=whole).config.rollout)
    for other in ({"temperature": 0.9}, {"top_p": 0.9}, {"top_k": 3}):
        assert not comparable(run(rollout={**whole, **other}).config.rollout)


def test_check_imports_no_heavy_packages() -> None:
    heavy = "{'torch', 'transformers', 'numpy'}"
    code = f"import sys, rlcore_trainer.checks.conflicts; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
