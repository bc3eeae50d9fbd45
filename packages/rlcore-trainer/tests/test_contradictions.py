from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore.config.messages import ProblemsError
from rlcore.config.schema import RunConfig
from rlcore.errors import UserError
from rlcore.registry import Registry
from rlcore_trainer.algorithm_config import AlgorithmConfig
from rlcore_trainer.config import CriticConfig, PolicyGradientConfig, WarmupConfig
from rlcore_trainer.contradictions import check, comparable
from rlcore_trainer.lora_config import LoraTable

REGISTRY = Registry()


def run(**tables: Any) -> Any:
    options = {
        "algorithm": AlgorithmConfig(**tables.get("algorithm", {})),
        "critic": CriticConfig(**tables.get("critic", {})),
        "lora": LoraTable(**tables.get("lora", {})),
        "trainer": PolicyGradientConfig(**tables.get("trainer", {})),
        "warmup": WarmupConfig(**tables.get("warmup", {})),
        "environment": SimpleNamespace(**tables.get("environment", {})),
    }
    values = {"model": {"path": "m"}, "environment": {"id": "e"}, "reward": [{"id": "r"}]}
    return SimpleNamespace(
        config=RunConfig(**values, rollout=tables.get("rollout", {})),
        resolved=SimpleNamespace(options=options, origin=lambda path: f"file:{'/'.join(path)}"),
        registry=REGISTRY,
        resume_from=None,
        options=lambda table: options[table],
        load=REGISTRY.load,
    )


def problems(**tables: Any) -> dict[str, str]:
    """The reason and the mend of each contradiction by its key."""
    try:
        check(run(**tables))
    except ProblemsError as error:
        return {problem.path: problem.reason for problem in error.problems}
    return {}


GAE = {"advantage": "gae"}
COPY = {"model": "copy"}


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"algorithm": GAE, "critic": COPY},
        {"algorithm": GAE, "critic": {"model": "somebody/value-model"}},
        {"algorithm": {**GAE, "gamma": 0.99, "gae_lambda": 0.9, "whiten": False}, "critic": {"model": "head"}},
        {"algorithm": {"loss": "gspo"}},
        {"algorithm": {"importance_sampling_level": "sequence", "clip_low": 1e-3}},
        {"algorithm": {"dual_clip": 3.0, "normalise_by_std": False}},
        {"algorithm": {"kl": {"coefficient": 0.1, "controller": "adaptive", "target_kl": 0.5}}},
        {"algorithm": {"kl": {"coefficient": 0.1, "target": "reward"}}},
        {"algorithm": {"overlong": {"buffer": 255}}},
        {"algorithm": {"overlong": {"buffer": 511}}, "environment": {"max_turns": 2}},
        {"algorithm": {"filter": {"rank_by_std": True, "oversample": 1.5}}},
        {"algorithm": {"filter": {"metric": "all-wrong"}, "advantage": "remax"}, "rollout": {"group_size": 1}},
        {"algorithm": {"advantage": "reinforce-plus-plus"}, "rollout": {"group_size": 1}},
        {"rollout": {"temperature": 0.7}},
        {"algorithm": {"correction": {"mode": "none"}}, "rollout": {"temperature": 0.7}},
        {"algorithm": {"correction": {"mode": "mask", "low": 0.1, "high": 3.0, "level": "sequence"}}},
        {"algorithm": {"overlong": {"buffer": 5, "penalty": 2.0}, "max_response_tokens": 99}},
        {"algorithm": {"aggregation": "seq-mean-token-sum-norm", "max_response_tokens": 99}},
        {"algorithm": {"filter": {"metric": "reward", "when_short": "skip", "max_extra_batches": 1}}},
        {"algorithm": {"filter": {"oversample": 2.0, "when_short": "skip"}}},
        {"algorithm": GAE, "critic": {**COPY, "warmup_steps": 4}, "trainer": {"steps": 5}},
        {"algorithm": {"kl": {"estimator": "k1", "target": "reward", "reference": "no/folder"}}},
    ],
)
def test_what_goes_together_is_not_refused(tables: dict[str, Any]) -> None:
    assert problems(**tables) == {}


def test_every_value_written_down_as_its_default_is_not_refused() -> None:
    """As in the configuration of a run that is continued."""
    algorithm = AlgorithmConfig(advantage="rloo", loss="sapo")
    assert problems(algorithm=algorithm.model_dump(), critic=CriticConfig().model_dump()) == {}


@pytest.mark.parametrize(
    ("tables", "path", "words"),
    [
        ({"algorithm": GAE}, "algorithm.advantage", ("values of a critic", "critic.model=copy", "critic.model=head")),
        ({"critic": COPY}, "critic.model", ("grpo reads no values", "algorithm.advantage=gae")),
        ({"critic": {"clip": 0.2}}, "critic.clip", ("there is no critic",)),
        (
            {"algorithm": GAE, "critic": {"model": "head", "learning_rate": 0.1}},
            "critic.learning_rate",
            ("policy's learning rate", "critic.coefficient"),
        ),
        ({"algorithm": GAE, "critic": {**COPY, "coefficient": 1.0}}, "critic.coefficient", ("critic.learning_rate",)),
        ({"algorithm": GAE, "critic": {"model": "./no/folder"}}, "critic.model", ("no model folder",)),
        ({"algorithm": GAE, "critic": {"model": "builtin:tiny-qwen2"}}, "critic.model", ("on the spot",)),
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
            ("a group of one",),
        ),
        ({"algorithm": {"filter": {"rank_by_std": True}}}, "algorithm.filter.rank_by_std", ("oversample=1.5",)),
        ({"algorithm": {"gamma": 0.9}}, "algorithm.gamma", ("grpo", "clip", "gae and reinforce-plus-plus read it")),
        (
            {"algorithm": {"loss": "gspo", "dual_clip": 3.0}},
            "algorithm.dual_clip",
            ("gspo", "fix: leave it out; clip reads it"),
        ),
        ({"algorithm": {"loss": "sapo", "clip_high": 0.3}}, "algorithm.clip_high", ("sapo",)),
        ({"algorithm": {"sapo_positive": 2.0}}, "algorithm.sapo_positive", ("sapo reads it",)),
        ({"algorithm": {"advantage": "rloo", "normalise_by_std": False}}, "algorithm.normalise_by_std", ("rloo",)),
        (
            {"algorithm": {"whiten": False}},
            "algorithm.whiten",
            ("gae, reinforce-plus-plus and reinforce-plus-plus-baseline read it",),
        ),
        ({"algorithm": {"options": {"slope": 1}}}, "algorithm.options.slope", ("neither grpo nor clip takes it",)),
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
        ({"algorithm": {"correction": {"low": 0.1}}}, "algorithm.correction.low", ("mode=mask",)),
        *(
            (
                {"algorithm": {"correction": {"mode": "none", **key}}},
                f"algorithm.correction.{next(iter(key))}",
                ("none",),
            )
            for key in ({"high": 3.0}, {"low": 0.1}, {"level": "sequence"})
        ),
        (
            {"algorithm": GAE, "critic": {**COPY, "warmup_steps": 5}, "trainer": {"steps": 5}},
            "critic.warmup_steps",
            ("5 steps", "never learn", "fewer than 5"),
        ),
        *(
            ({"algorithm": {"options": {key: 0.5}}}, f"algorithm.options.{key}", (f"set algorithm.{key} itself",))
            for key in ("clip_low", "gamma", "advantage")
        ),
        *(
            ({"algorithm": {"correction": {"mode": "mask"}}, "rollout": rollout}, "algorithm.correction.mode", ("1",))
            for rollout in ({"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 5})
        ),
    ],
)
def test_a_contradiction_names_its_key_and_what_mends_it(
    tables: dict[str, Any], path: str, words: tuple[str, ...]
) -> None:
    found = problems(**tables)
    assert list(found) == [path]
    assert "\nfix: " in found[path]
    assert all(word in found[path] for word in words)


def test_all_contradictions_are_shown_at_once_with_their_origin() -> None:
    with pytest.raises(ProblemsError) as caught:
        check(run(algorithm={"advantage": "gae", "dual_clip": 3.0, "loss": "gspo", "overlong": {"buffer": 999}}))
    text = str(caught.value)
    assert text.startswith("3 problems")
    for path in ("algorithm/advantage", "algorithm/dual_clip", "algorithm/overlong/buffer"):
        assert f"from file:{path}" in text


def test_a_function_of_somebody_else_is_asked_for_its_signature(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def mine(rewards_N, values_NT, *, slope, gamma=1.0): ...\ndef odd(rewards): ...\n"
        "def free(rewards_N, **options): ...\n",
        encoding="utf-8",
    )
    mine = {"advantage": f"{file}:mine", "gamma": 0.5, "options": {"slope": 1.0}}
    assert problems(algorithm=mine, critic=COPY) == {}
    assert list(problems(algorithm=mine)) == ["algorithm.advantage"]
    assert problems(algorithm={"advantage": f"{file}:free", "options": {"slope": 1.0}}) == {}
    with pytest.raises(UserError, match="name what it is given") as caught:
        check(run(algorithm={"advantage": f"{file}:odd"}))
    assert caught.value.found == "odd has the parameter rewards"
    assert str(caught.value.where).startswith(str(file))


def test_what_a_function_of_somebody_else_must_be_told_is_asked_for_before_the_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def mine(rewards_N, *, slope, gamma): ...\ndef loss(logprobs_M, *, knee, clip_low, **more): ...\n",
        encoding="utf-8",
    )
    both = {"advantage": f"{file}:mine", "loss": f"{file}:loss"}
    found = problems(algorithm=both)
    assert list(found) == ["algorithm.advantage", "algorithm.loss"]
    assert "set algorithm.options.slope" in found["algorithm.advantage"]
    assert "set algorithm.options.knee" in found["algorithm.loss"]
    assert problems(algorithm={**both, "options": {"slope": 1, "knee": 2, "other": 3}}) == {}
    # A loss that takes any option would be given this one in place of the key.
    assert list(problems(algorithm={**both, "options": {"slope": 1, "knee": 2, "clip_low": 3}})) == [
        "algorithm.options.clip_low"
    ]


def test_a_loss_of_somebody_else_has_ratios_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def plain(logprobs_M, weights_M): ...\ndef told(logprobs_M, *, importance_sampling_level): ...\n",
        encoding="utf-8",
    )
    level = {"importance_sampling_level": "sequence"}
    assert list(problems(algorithm={"loss": f"{file}:plain", **level})) == ["algorithm.importance_sampling_level"]
    assert problems(algorithm={"loss": f"{file}:told", **level}) == {}
    assert problems(algorithm={"loss": f"{file}:plain"}) == {}


def test_a_reference_that_is_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    algorithm = {"kl": {"coefficient": 0.1, "reference": str(tmp_path)}}
    assert "has no config.json" in problems(algorithm=algorithm)["algorithm.kl.reference"]
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).touch()
    assert problems(algorithm=algorithm) == {}


def test_a_trainer_with_an_algorithm_table_of_its_own_is_left_alone() -> None:
    other = run()
    other.resolved.options["algorithm"] = SimpleNamespace(advantage="mine")
    check(other)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"algorithm": {"kl": {"coefficient": 0.1, "estimator": "k1"}}}, "k1 as a loss"),
        ({"algorithm": {"loss": "gspo", "clip_high": 0.2}}, "practically never"),
        ({"algorithm": {"loss": "gspo", "aggregation": "token-mean"}}, "long trajectories more weight"),
        ({"rollout": {"temperature": 0.7}}, "neither corrected nor measured"),
        ({"trainer": {"updates_per_rollout": 4, "epochs": 2}}, "8 updates on each rollout"),
        ({"algorithm": GAE, "critic": {**COPY, "warmup_steps": 3}}, "only the critic learns for the first 3 steps"),
        ({"algorithm": {"shuffle_rewards": True}}, "nothing can be learnt"),
        (
            {"algorithm": {"shuffle_rewards": True, "gamma": 0.9, "advantage": "reinforce-plus-plus"}},
            "only length can be learnt, as gamma=0.9",
        ),
        ({"algorithm": {"kl": {"estimator": "k1"}}}, "kl.estimator changes nothing"),
        ({"algorithm": {"kl": {"estimator": "k1", "target": "reward"}}}, "kl.estimator and kl.target change nothing"),
        ({"warmup": {"steps": 9}}, "on demonstrations for 9 steps"),
        ({"algorithm": {"filter": {"max_extra_batches": 9}}}, "filter.max_extra_batches changes nothing"),
    ],
)
def test_what_may_surprise_is_said_in_one_sentence(tables: dict[str, Any], words: str) -> None:
    found = check(run(**tables))
    assert len(found) == 1
    assert words in found[0]
    assert "\n" not in found[0]


def test_there_is_nothing_to_say_about_the_defaults() -> None:
    assert check(run()) == []
    weighted = {"coefficient": 0.1, "estimator": "k1", "importance_weighted": True}
    assert check(run(algorithm={"kl": weighted})) == []


def test_only_samples_of_the_whole_distribution_at_temperature_1_are_comparable() -> None:
    whole = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
    assert comparable(run(rollout=whole).config.rollout)
    for other in ({"temperature": 0.9}, {"top_p": 0.9}, {"top_k": 3}):
        assert not comparable(run(rollout={**whole, **other}).config.rollout)


def test_nothing_heavy_is_imported_to_check() -> None:
    code = "import sys, rlcore_trainer.contradictions; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
