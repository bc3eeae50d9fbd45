"""Translation of verl overrides: each key sets rlcore keys, is ignored with a reason, or is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore.config.adapters import nearest_adapter_key, translate
from rlcore.config.fields import keys_of
from rlcore.config.layers import Layer
from rlcore.config.schema import RunConfig
from rlcore.plugins.registry import Registry
from rlcore_compat.verl import VERL
from rlcore_compat.vocabulary import foreign_value

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
REGISTRY = Registry()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A translated command line."""

    layer: Layer
    own: Sequence[str]
    lines: Sequence[str]


def read(*settings: str) -> Reading:
    """As ``rlcore run`` does."""
    found = translate(REGISTRY, files=(), overrides=settings)
    layer = found.overrides[0] if found.overrides else Layer(tree={}, origins={})
    return Reading(layer=layer, own=found.own, lines=found.lines)


def problems_of(*settings: str) -> list[tuple[str, str, str]]:
    """Kind, path and reason of each problem."""
    problems = read(*settings).layer.problems
    return [(problem.kind, problem.path, problem.reason) for problem in problems]


def test_key_is_translated_and_becomes_the_origin() -> None:
    reading = read("agent.num_chains=8", "seed=3")
    assert reading.layer.tree == {"rollout": {"group_size": 8}}
    assert reading.layer.origin(("rollout", "group_size")) == "command line: agent.num_chains=8"
    assert reading.own == ["seed=3"]
    assert reading.lines == ["agent.num_chains=8 -> rollout.group_size = 8"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("True", True),
        ("false", False),
        ("None", None),
        ("null", None),
        ("5e-7", 5e-7),
        ("[calculator]", ["calculator"]),
        ("['console','wandb']", ["console", "wandb"]),
        ('["a", 2]', ["a", 2]),
        ("[]", []),
        ("'quoted text'", "quoted text"),
        ("./a/b.json", "./a/b.json"),
    ],
)
def test_values_are_parsed_like_hydra(text: str, value: Any) -> None:
    assert foreign_value(text) == value


def test_arguments_of_the_chat_template_are_kept() -> None:
    reading = read("+data.apply_chat_template_kwargs.enable_thinking=False")
    assert reading.layer.tree == {"model": {"chat_template_kwargs": {"enable_thinking": False}}}


def test_conflicting_keys_are_rejected() -> None:
    path = "model/of/mine"
    agreeing = [f"agent.model_name_or_path={path}", f"actor_rollout_ref.model.path={path}"]
    assert read(*agreeing).layer.problems == ()
    (problem,) = read(agreeing[0], "actor_rollout_ref.model.path=other").layer.problems
    assert problem.path == "model.path"
    assert problem.origin == "command line: actor_rollout_ref.model.path=other"
    assert agreeing[0] in problem.reason


def test_last_value_of_a_key_counts() -> None:
    reading = read(f"{ACTOR}.optim.lr=1e-6", "seed=1", f"+{ACTOR}.optim.lr=1e-5")
    assert reading.layer.problems == ()
    assert reading.layer.tree == {"trainer": {"learning_rate": 1e-5}}
    assert reading.layer.origin(("trainer", "learning_rate")).endswith("optim.lr=1e-5")
    assert reading.lines[0] == f"{ACTOR}.optim.lr=1e-6 sets nothing: +{ACTOR}.optim.lr=1e-5 comes later"


@given(st.lists(st.sampled_from(["=1e-6", "=1e-5", "=2e-5"]), min_size=1, max_size=5))
def test_every_repetition_of_a_key_has_a_line(values: list[str]) -> None:
    reading = read(*(f"{ACTOR}.optim.lr{value}" for value in values))
    assert reading.layer.problems == ()
    assert reading.layer.tree == {"trainer": {"learning_rate": float(values[-1][1:])}}
    assert len(reading.lines) == len(values)


def tree(*settings: str) -> object:
    layer = read(*settings).layer
    assert layer.problems == ()
    return layer.tree


def test_number_of_gpus_sets_the_number_of_processes() -> None:
    words = ("trainer.n_gpus_per_node=8", "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2")
    assert tree(words[0]) == {"strategy": {"id": "fsdp2", "processes": 8}}
    assert tree(*words) == {"strategy": {"id": "fsdp2", "processes": 8, "sequence_parallel": 2}}


def test_critic_keys_are_used_only_with_gae() -> None:
    critic = ("critic.model.path=x", "critic.optim.lr=1e-5", "trainer.critic_warmup=20")
    assert tree(*critic, "algorithm.adv_estimator=grpo") == {"algorithm": {"advantage": "grpo"}}
    table = {"model": "x", "learning_rate": 1e-5, "warmup_steps": 20}
    assert tree(*critic, "algorithm.adv_estimator=gae") == {"algorithm": {"advantage": "gae"}, "critic": table}
    assert tree("algorithm.adv_estimator=gae") == {"algorithm": {"advantage": "gae"}, "critic": {"model": "copy"}}


def test_rlcore_critic_keys_are_not_claimed() -> None:
    reading = read("critic.learning_rate=1e-3", "critic.warmup_steps=2")
    assert reading.own == ["critic.learning_rate=1e-3", "critic.warmup_steps=2"]
    assert reading.layer.problems == ()


@pytest.mark.parametrize(
    ("estimator", "ours"),
    [
        ("reinforce_plus_plus_baseline", "reinforce-plus-plus-baseline"),
        ("grpo_passk", "pass-at-k"),
        ("opo", "opo"),
        ("gdpo", "gdpo"),
        ("tir_optimal_token_baseline", "optimal-token-baseline"),
    ],
)
def test_estimator_names_are_translated(estimator: str, ours: str) -> None:
    assert tree(f"algorithm.adv_estimator={estimator}") == {"algorithm": {"advantage": ours}}


def test_kl_in_the_reward_uses_its_own_coefficient() -> None:
    reward = ("algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.kl_coef=0.01", "algorithm.kl_penalty=kl")
    kl = {"target": "reward", "coefficient": 0.01, "estimator": "kl"}
    assert tree(*reward, f"{ACTOR}.kl_loss_coef=0.5", f"{ACTOR}.use_kl_loss=False") == {"algorithm": {"kl": kl}}
    assert tree("algorithm.use_kl_in_reward=False", *reward[1:]) == {}
    assert problems_of(reward[0], f"{ACTOR}.use_kl_loss=True")[0][:2] == ("refused", "algorithm.use_kl_in_reward")


@pytest.mark.parametrize(
    ("estimator", "read"),
    [
        ("grpo", {"normalise_by_std": False}),
        ("grpo_passk", {"normalise_by_std": False}),
        ("rloo", {}),
        ("reinforce_plus_plus", {"gamma": 0.5}),
        ("gae", {"gamma": 0.5, "gae_lambda": 0.9}),
    ],
)
def test_key_is_used_only_if_the_estimator_reads_it(estimator: str, read: dict[str, object]) -> None:
    words = ("algorithm.lam=0.9", "algorithm.gamma=0.5", "algorithm.norm_adv_by_std_in_grpo=False")
    advantage = tree(*words, f"algorithm.adv_estimator={estimator}", "critic.model.path=x")["algorithm"]["advantage"]
    own = {key: value for key, value in advantage.items() if key != "id"} if isinstance(advantage, dict) else {}
    assert own == read


def test_loss_clip_and_filter_keys_are_translated() -> None:
    actor = ("clip_ratio=0.1", "clip_ratio_c=3.0", "loss_agg_mode=seq-mean-token-sum", "policy_loss.loss_mode=vanilla")
    assert tree(*(f"{ACTOR}.{setting}" for setting in actor)) == {
        "algorithm": {
            "loss": {"id": "clip", "clip_low": 0.1, "clip_high": 0.1, "dual_clip": 3.0},
            "aggregation": "seq-mean-token-sum",
        }
    }
    groups = "algorithm.filter_groups"
    settings = (f"{groups}.enable=True", f"{groups}.metric=seq_reward", f"{groups}.max_num_gen_batches=10")
    assert tree(*settings) == {"algorithm": {"filter": {"metric": "reward", "max_extra_batches": 9}}}
    assert tree(*settings[1:]) == {"algorithm": {"filter": {"metric": "none"}}}
    assert tree(*settings[:2], f"{groups}.max_num_gen_batches=0") == {"algorithm": {"filter": {"metric": "reward"}}}
    assert problems_of(f"{groups}.max_num_gen_batches=-1")[0][:2] == ("refused", f"{groups}.max_num_gen_batches")


@pytest.mark.parametrize(
    ("mode", "loss", "clipped", "aggregated"),
    [
        ("vanilla", "clip", True, True),
        ("gspo", "gspo-token", True, True),
        ("cispo", "cispo", True, True),
        ("geo_mean", "geo-mean", True, False),
        ("gpg", "gpg", False, True),
        ("sapo", "sapo", False, False),
        ("dppo_tv", "dppo-tv", True, True),
        ("kl_cov", "kl-cov", False, True),
        ("own.py:loss", "own.py:loss", True, True),
    ],
)
def test_loss_of_verl_sets_the_same_loss_with_the_keys_it_reads(
    mode: str, loss: str, clipped: bool, aggregated: bool
) -> None:
    settings = (
        f"policy_loss.loss_mode={mode}",
        "clip_ratio_low=0.1",
        "clip_ratio_high=0.3",
        "loss_agg_mode=token-mean",
    )
    bounds = {"clip_low": 0.1, "clip_high": 0.3} if clipped else {}
    expected = {"loss": {"id": loss, **bounds} if clipped else loss}
    assert tree(*(f"{ACTOR}.{setting}" for setting in settings)) == {
        "algorithm": {**expected, **({"aggregation": "token-mean"} if aggregated else {})}
    }


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        (("loss_mode=clip_cov", "clip_cov_ratio=0.01", "clip_cov_lb=0.5"), {"share": 0.01, "covariance_low": 0.5}),
        (("loss_mode=kl_cov", "kl_cov_ratio=0.01", "ppo_kl_coef=0.2"), {"share": 0.01, "kl_coefficient": 0.2}),
        (("loss_mode=vanilla", "kl_cov_ratio=0.01"), {}),
    ],
)
def test_keys_of_a_policy_loss_are_those_of_ours(settings: tuple[str, ...], keys: dict[str, float]) -> None:
    name = {"vanilla": "clip"}.get(mode := settings[0].partition("=")[2], mode.replace("_", "-"))
    found = tree(*(f"{ACTOR}.policy_loss.{setting}" for setting in settings))
    assert found == {"algorithm": {"loss": {"id": name, **keys} if keys else name}}


def test_largest_ratio_is_that_of_the_loss() -> None:
    dppo = (f"{ACTOR}.clip_ratio_c=10", f"{ACTOR}.policy_loss.loss_mode=dppo_kl")
    assert tree(*dppo) == {"algorithm": {"loss": {"id": "dppo-kl", "largest_ratio": 10}}}
    assert tree(f"{ACTOR}.clip_ratio_c=10") == {"algorithm": {"loss": {"dual_clip": 10}}}


@pytest.mark.parametrize(
    ("settings", "coefficient"),
    [
        (("use_kl_loss=True", "kl_loss_coef=0.01"), 0.01),
        (("kl_loss_coef=0.01", "use_kl_loss=True"), 0.01),
        (("use_kl_loss=True",), 0.001),
        (("use_kl_loss=False", "kl_loss_coef=0.01"), 0.0),
        (("kl_loss_coef=0.01",), 0.0),
    ],
)
def test_kl_loss_coefficient_depends_on_use_kl_loss(settings: tuple[str, ...], coefficient: float) -> None:
    layer = read(*[f"{ACTOR}.{setting}" for setting in settings]).layer
    assert layer.problems == ()
    assert layer.tree == {"algorithm": {"kl": {"coefficient": coefficient}}}


def test_use_kl_loss_must_be_a_boolean() -> None:
    assert problems_of(f"{ACTOR}.use_kl_loss=maybe")[0][:2] == ("refused", f"{ACTOR}.use_kl_loss")


@pytest.mark.parametrize(
    ("siblings", "mini_batch", "updates"),
    [
        ("agent.num_chains=8", 32, 8),  # counted in trajectories: 256 of 32
        ("agent.num_chains=8", 256, 1),
        ("actor_rollout_ref.rollout.n=8", 32, 1),  # counted in prompts: 32 of 32
        ("actor_rollout_ref.rollout.n=8", 8, 4),
    ],
)
def test_mini_batches_become_updates_per_rollout(siblings: str, mini_batch: int, updates: int) -> None:
    settings = ["data.train_batch_size=32", siblings, f"{ACTOR}.ppo_mini_batch_size={mini_batch}"]
    assert read(*settings).layer.tree["trainer"]["updates_per_rollout"] == updates


def test_mini_batch_size_must_divide_the_batch() -> None:
    batch = ("data.train_batch_size=32", "agent.num_chains=8")
    for settings in ((*batch, f"{ACTOR}.ppo_mini_batch_size=48"), (f"{ACTOR}.ppo_mini_batch_size=32",)):
        assert problems_of(*settings)[0][:2] == ("refused", f"{ACTOR}.ppo_mini_batch_size")


@pytest.mark.parametrize(("name", "id"), [("exact_match", "exact-match"), ("my_code.py:my_one", "my_code.py:my_one")])
def test_reward_name_becomes_the_only_reward(name: str, id: str) -> None:
    assert read(f"agent.reward_name={name}").layer.tree == {"reward": [{"id": id}]}


def test_minus_one_is_translated_to_zero() -> None:
    layer = read("trainer.test_freq=-1", "trainer.save_freq=-1").layer
    assert layer.tree == {"evaluation": {"every": 0}, "checkpoint": {"every": 0}}


def test_rlcore_overrides_take_precedence() -> None:
    reading = read("model=here", "agent.model_name_or_path=there", "agent.template=plain")
    assert reading.lines[0].endswith("(but model=here takes precedence)")
    assert reading.lines[1] == 'agent.template=plain -> model.chat_format = "plain"'


def test_hydra_prefixes_are_ignored() -> None:
    assert read("+agent.num_chains=8").layer.tree == read("agent.num_chains=8").layer.tree


def test_unknown_key_has_a_suggestion_if_similar() -> None:
    found = problems_of(f"{ACTOR}.kl_los_type=mse", "actor_rollout_ref.nothing.like_it=1")
    assert found[0] == ("unknown key", f"{ACTOR}.kl_los_type", f"did you mean {ACTOR}.kl_loss_type ?")
    assert found[1][:2] == ("unknown key", "actor_rollout_ref.nothing.like_it")


def test_misspelt_key_is_not_ignored_with_the_rest_of_its_table() -> None:
    agent = "actor_rollout_ref.rollout.agent"
    (found,) = problems_of(f"{agent}.max_turn=5", f"{agent}.num_workers=8")
    assert found == ("unknown key", f"{agent}.max_turn", f"did you mean {agent}.max_turns ?")


def test_unknown_secret_is_masked() -> None:
    (problem,) = read("agent.api_key=abc123").layer.problems
    assert "abc123" not in str(problem)


def test_verl_keys_and_rlcore_keys_are_disjoint() -> None:
    assert not set(VERL.meanings) & set(keys_of(RunConfig))


@pytest.mark.parametrize(
    ("settings", "lengths"),
    [
        (("data.max_response_length=100",), {"max_new_tokens": 100}),
        (("data.max_prompt_length=50",), {"max_context_tokens": 562}),
        (
            ("data.max_prompt_length=50", "data.max_response_length=100"),
            {"max_new_tokens": 100, "max_context_tokens": 150},
        ),
        (
            ("data.max_prompt_length=50", "data.max_response_length=100", f"{ROLLOUT}.response_length=80"),
            {"max_new_tokens": 80, "max_context_tokens": 130},
        ),
        (
            ("data.max_prompt_length=50", "data.max_response_length=100", f"{ROLLOUT}.max_model_len=120"),
            {"max_new_tokens": 100, "max_context_tokens": 120},
        ),
        ((f"{ROLLOUT}.max_model_len=4096",), {"max_context_tokens": 4096}),
    ],
)
def test_prompt_and_response_length_limit_the_context(settings: tuple[str, ...], lengths: dict[str, int]) -> None:
    assert tree(*settings) == {"rollout": lengths}


def test_invalid_length_is_reported_once() -> None:
    problems = problems_of("data.max_prompt_length=none", "data.max_response_length=100")
    assert [problem[:2] for problem in problems] == [("refused", "data.max_prompt_length")]


def test_filter_for_overlong_prompts_removes_tasks_above_the_prompt_length() -> None:
    on, off = "data.filter_overlong_prompts=True", "data.filter_overlong_prompts=False"
    assert tree(on) == {"rollout": {"max_prompt_tokens": 512}}
    assert tree(on, "data.max_prompt_length=50")["rollout"]["max_prompt_tokens"] == 50
    assert tree(off) == {}
    assert "max_prompt_tokens" not in tree(off, "data.max_prompt_length=50")["rollout"]
    assert problems_of("data.filter_overlong_prompts=7")[0][:2] == ("refused", "data.filter_overlong_prompts")


def test_passes_over_the_data_become_steps() -> None:
    assert tree("trainer.total_epochs=15") == {"trainer": {"steps": "15 passes"}}
    assert tree("trainer.total_epochs=1", "trainer.total_training_steps=null") == {"trainer": {"steps": "1 pass"}}
    assert tree("trainer.total_epochs=15", "trainer.total_training_steps=7") == {"trainer": {"steps": 7}}


def test_engine_of_rlcore_is_not_taken_for_that_of_verl() -> None:
    assert problems_of("engine.id=vllm")[0][:2] == ("refused", "engine.id")


def test_own_override_replaces_an_unsupported_value() -> None:
    assert problems_of(f"{ROLLOUT}.name=sglang")[0][:2] == ("refused", f"{ROLLOUT}.name")
    reading = read(f"{ROLLOUT}.name=sglang", "rollout.engine=torch")
    assert reading.layer.problems == ()
    assert reading.lines == [f"{ROLLOUT}.name=sglang sets nothing: rollout.engine=torch takes precedence"]


def test_own_override_resolves_a_conflict() -> None:
    models = ("agent.model_name_or_path=one", "actor_rollout_ref.model.path=two")
    assert problems_of(*models)
    assert read(*models, "model=mine").layer.problems == ()


def test_keys_of_a_table_are_translated_together() -> None:
    vllm = f"{ROLLOUT}.engine_kwargs.vllm"
    found = tree(f"{vllm}.block_size=16", f"{vllm}.max_model_len=99")
    assert found == {"rollout": {"vllm": {"arguments": {"block_size": 16}}, "max_context_tokens": 99}}
    problems = problems_of(
        *(f"{ACTOR}.megatron.{key}" for key in ("tensor_model_parallel_size=2", "param_offload=True"))
    )
    assert [problem[:2] for problem in problems] == [("refused", f"{ACTOR}.megatron.tensor_model_parallel_size")]


@pytest.mark.parametrize(
    "key", ["actor_rollout_ref.model.mtp_enable", f"{ACTOR}.mode", "agent.lr", f"{ACTOR}.engines.tp"]
)
def test_unknown_key_has_no_suggestion_of_another_meaning(key: str) -> None:
    ((kind, path, reason),) = problems_of(f"{key}=1")
    assert (kind, path) == ("unknown key", key)
    assert "did you mean" not in reason


@pytest.mark.parametrize("table", [f"{ACTOR}.", f"{ACTOR}.fsdp_config.", "actor_rollout_ref.ref.fsdp_config."])
@pytest.mark.parametrize(("value", "ours"), [("True", "frozen"), ("False", "trained")])
def test_vision_tower_is_frozen_wherever_the_key_is(table: str, value: str, ours: str) -> None:
    assert read(f"{table}freeze_vision_tower={value}").layer.tree == {"model": {"vision_tower": ours}}


def test_keys_of_gui_agents_set_nothing_and_say_why() -> None:
    words = [
        f"{ROLLOUT}.engine_kwargs.vllm.swap_space=16",
        "data.use_difficulty_sampler=False",
        "reward_model.use_history_summary_reward=False",
        "reward_model.reward_kwargs.max_workers=300",
        "trainer.wandb_proxy=None",
    ]
    reading = read(*words)
    assert not reading.layer.tree
    assert not reading.layer.problems
    assert all(line.startswith(f"{word} sets nothing: ") for word, line in zip(words, reading.lines, strict=True))


GROUPS = "algorithm.filter_groups"
KEPT = f"{GROUPS}.end_reason_filter_reserve_names"


@pytest.mark.parametrize(
    ("metric", "kept", "filter"),
    [
        ("[seq_reward]", None, {"metric": "reward"}),
        ("[seq_reward,trajlength,vtoken_images_num_consis]", None, {"metric": "reward"}),
        (
            "[seq_reward,end_reason]",
            "[DONE,EXCEED_MAX_TURNS,ERROR_IN_ACTION]",
            {"metric": "reward", "exclude": ["length"]},
        ),
        ("[end_reason]", "[DONE,OVER_LENGTH]", {"metric": "none", "exclude": ["max_turns", "tool_errors"]}),
        ("[acc,end_reason]", None, {"metric": "accuracy", "exclude": ["max_turns", "length", "tool_errors"]}),
        ("seq_reward", "[DONE]", {"metric": "reward"}),
    ],
)
def test_filters_of_trajectories_become_reasons_to_exclude(
    metric: str, kept: str | None, filter: dict[str, object]
) -> None:
    words = [f"{GROUPS}.enable=True", f"{GROUPS}.metric={metric}", *([f"{KEPT}={kept}"] if kept else [])]
    assert tree(*words) == {"algorithm": {"filter": filter}}


@pytest.mark.parametrize(
    ("metric", "kept", "key"),
    [
        ("[seq_reward,hasimage]", "[DONE]", f"{GROUPS}.metric"),
        ("[seq_reward,pos_sample_neg_adv]", "[DONE]", f"{GROUPS}.metric"),
        ("[seq_reward,acc]", "[DONE]", f"{GROUPS}.metric"),
        ("[seq_reward,length]", "[DONE]", f"{GROUPS}.metric"),
        ("[seq_reward,end_reason]", "[EXCEED_MAX_TURNS]", KEPT),
        ("[seq_reward,end_reason]", "[DONE,FINISHED]", KEPT),
    ],
)
def test_filters_that_split_groups_unfairly_are_refused(metric: str, kept: str, key: str) -> None:
    assert [
        problem[:2] for problem in problems_of(f"{GROUPS}.enable=True", f"{GROUPS}.metric={metric}", f"{KEPT}={kept}")
    ] == [("refused", key)]


@pytest.mark.parametrize(("size", "filter"), [(128, {"oversample": 2.0}), (64, {}), (32, {})])
def test_smaller_batches_of_samples_set_nothing(size: int, filter: dict[str, float]) -> None:
    words = (f"{GROUPS}.enable=True", "data.train_batch_size=64", f"data.gen_batch_size={size}")
    assert tree(*words)["algorithm"] == {"filter": {"metric": "accuracy", **filter}}


@pytest.mark.parametrize(("turn", "response", "limit"), [(100, 300, 100), (300, 100, 100), (200, None, 200)])
def test_limit_of_a_turn_is_the_longest_generation(turn: int, response: int | None, limit: int) -> None:
    words = [f"{ROLLOUT}.agent.single_response_max_tokens={turn}"]
    words += [f"data.max_response_length={response}"] if response else []
    assert tree(*words) == {"rollout": {"max_new_tokens": limit}}


def test_several_machines_are_those_of_ray_or_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("trainer.nnodes=2", "trainer.n_gpus_per_node=8")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert tree(*words) == {"strategy": {"id": "fsdp2", "address": "auto", "processes": 16}}
    monkeypatch.setenv("WORLD_SIZE", "8")
    ((kind, path, reason),) = problems_of(*words)
    assert (kind, path) == ("refused", "trainer.nnodes")
    assert "WORLD_SIZE=8" in reason
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert tree(*words) == {"strategy": {"id": "fsdp2"}}
    assert tree("trainer.nnodes=1", "trainer.n_gpus_per_node=8") == {"strategy": {"id": "fsdp2", "processes": 8}}


@pytest.mark.parametrize(
    ("estimator", "reason"),
    [("adv_estimator=gpg", "dr-grpo"), ("gdpo_reward_keys=['a','b']", "reward.1.id")],
)
def test_estimators_without_counterpart_are_refused_with_a_reason(estimator: str, reason: str) -> None:
    (problem,) = read(f"algorithm.{estimator}").layer.problems
    assert problem.kind == "refused"
    assert reason in problem.reason


def test_suggestions_have_the_same_meaning() -> None:
    registry = Registry()
    for key in ("data.no_such_key", "no_such_key"):
        assert nearest_adapter_key(registry, key) is None
    assert read("model.use_remove_padding=True").lines == [
        "model.use_remove_padding=True sets nothing: batches are always packed, without padding"
    ]
    assert nearest_adapter_key(registry, "loss_type") == "algorithm.aggregation"
    assert nearest_adapter_key(registry, "actor.kl_loss_type") == f"{ACTOR}.kl_loss_type"


SFT = ("data.train_files=a.parquet", "model.partial_pretrain=acme/one")
SELECTED = {"trainer": {"id": "sft"}, "model": {"path": "acme/one"}, "data": {"id": "chat", "train": "a.parquet"}}


def supervised(*settings: str) -> dict[str, Any]:
    """What settings of the supervised trainer add to its selection."""
    layer = read(*SFT, *settings).layer
    assert layer.problems == ()
    return {
        table: rest
        for table, keys in layer.tree.items()
        if (rest := {key: value for key, value in keys.items() if key not in SELECTED.get(table, {})})
    }


def test_keys_of_the_supervised_trainer_select_it() -> None:
    assert tree(*SFT) == SELECTED
    assert tree("data.train_files=a.parquet") == {"data": {"train": "a.parquet"}}
    own = read("data.train_files=a.parquet", "data.train_batch_size=8", "trainer.id=sft").layer.tree
    assert own["trainer"] == {"id": "sft", "conversations_per_step": 8}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("data.train_batch_size=8",), {"trainer": {"conversations_per_step": 8}}),
        (("data.max_length=512", "data.truncation=right"), {"trainer": {"max_tokens": 512, "on_long": "cut"}}),
        (("data.truncation=error", "data.pad_mode=right"), {"trainer": {"on_long": "raise"}}),
        (("data.truncation=error", "data.pad_mode=no_padding"), {"trainer": {"on_long": "cut"}}),
        (("trainer.total_epochs=4", "trainer.save_freq=-1"), {"trainer": {"epochs": 4}, "checkpoint": {"every": 0}}),
        (("optim.lr=1e-4", "optim.betas=[0.9,0.95]"), {"trainer": {"learning_rate": 1e-4, "betas": [0.9, 0.95]}}),
        (("optim.lr_warmup_steps_ratio=0.1", "optim.lr_warmup_steps=5"), {"trainer": {"lr_warmup_steps": 5}}),
        (("model.lora_rank=0", "model.lora_alpha=16"), {}),
        (("model.lora_rank=8", "model.lora_alpha=16"), {"lora": {"rank": 8, "alpha": 16}}),
        (("data.response_key=a",), {"data": {"prompt": "question", "completion": "a"}}),
        (
            (
                "data.prompt_key=x",
                "data.response_key=x",
                "data.prompt_dict_keys=['q']",
                "+data.response_dict_keys=['a']",
            ),
            {"data": {"prompt": "x.q", "completion": "x.a"}},
        ),
        (("data.multiturn.enable=true", "data.prompt_key=x"), {"data": {"messages": "messages"}}),
        (("data.multiturn.enable=true", "data.multiturn.messages_key=m"), {"data": {"messages": "m"}}),
        (("trainer.max_ckpt_to_keep=5", "use_remove_padding=true"), {"checkpoint": {"keep": 5}}),
    ],
)
def test_keys_of_the_supervised_trainer_are_translated(settings: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert supervised(*settings) == expected


def test_supervised_processes_are_divided_if_torchrun_has_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert supervised("ulysses_sequence_parallel_size=2") == {}
    monkeypatch.setenv("WORLD_SIZE", "8")
    expected = {"strategy": {"id": "fsdp2", "sequence_parallel": 2}}
    assert (
        supervised("ulysses_sequence_parallel_size=2")
        == supervised("engine.ulysses_sequence_parallel_size=2")
        == expected
    )


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("optim.lr_scheduler=wsd", "must be cosine"),
        ("optim.min_lr_ratio=0.1", "ends at zero"),
        ("data.truncation=left", "cut at their end"),
        ("engine=megatron", "megatron is not supported"),
        ("optim.lr_decay_style=cosine", "Megatron"),
        ("trainer.test_freq=after_each_epoch", "number of steps"),
        ("data.train_max_samples=100", "data.limit"),
        ("data.multiturn.tools_key=functions", "rename the column"),
        ("data.custom_cls.path=mine.py", "data.id=file.py:Class"),
        ("data.prompt_key=[a]", "name of a column"),
    ],
)
def test_supervised_training_that_is_not_supported_is_refused(setting: str, reason: str) -> None:
    ((kind, path, found),) = problems_of(*SFT, setting)
    assert (kind, path) == ("refused", setting.partition("=")[0])
    assert reason in found
