"""Words of another system: read, answered or refused, never dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rlcore.config.fields import keys_of
from rlcore.config.schema import RunConfig
from rlcore.config.verl import VERL
from rlcore.config.vocabulary import foreign_value, read_words

ACTOR = "actor_rollout_ref.actor"


def complaints(*words: str) -> list[tuple[str, str, str]]:
    """Kind, path and first line of the reason of each problem."""
    problems = read_words(words, VERL).layer.problems
    return [(problem.kind, problem.path, problem.reason) for problem in problems]


def test_a_word_sets_our_key_and_is_its_origin() -> None:
    reading = read_words(["agent.num_chains=8", "seed=3"], VERL)
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
def test_values_are_read_as_hydra_writes_them(text: str, value: Any) -> None:
    assert foreign_value(text) == value


def test_words_that_agree_are_fine_and_words_that_disagree_are_both_named() -> None:
    path = "model/of/mine"
    agreeing = [f"agent.model_name_or_path={path}", f"actor_rollout_ref.model.path={path}"]
    assert read_words(agreeing, VERL).layer.problems == ()
    (problem,) = read_words([agreeing[0], "actor_rollout_ref.model.path=other"], VERL).layer.problems
    assert problem.path == "model.path"
    assert problem.origin == "command line: actor_rollout_ref.model.path=other"
    assert problem.reason.startswith(agreeing[0])


def test_a_word_given_twice_with_two_values_is_a_mistake() -> None:
    kind, path, reason = complaints(f"{ACTOR}.optim.lr=1e-6", f"{ACTOR}.optim.lr=1e-5")[0]
    assert (kind, path) == ("bad value", "trainer.learning_rate")
    assert f"{ACTOR}.optim.lr=1e-6" in reason


@pytest.mark.parametrize(
    ("fine", "refused"),
    [
        ("trainer.nnodes=1", "trainer.nnodes=2"),
        ("trainer.n_gpus_per_node=1", "trainer.n_gpus_per_node=0"),
        ("agent.use_agent=True", "agent.use_agent=False"),
        ("agent.agent_type=hf", "agent.agent_type=react"),
        ("agent.backend=async_verl", "agent.backend=client"),
    ],
)
def test_what_sets_nothing_is_answered_and_refused_when_it_asks_for_more(fine: str, refused: str) -> None:
    reading = read_words([fine], VERL)
    assert not reading.layer.tree
    assert not reading.layer.problems
    assert reading.lines[0].startswith(f"{fine} sets nothing: ")
    ((kind, path, reason),) = complaints(refused)
    assert (kind, path) == ("refused", refused.partition("=")[0])
    assert reason


def tree(*words: str) -> object:
    layer = read_words(words, VERL).layer
    assert layer.problems == ()
    return layer.tree


def test_several_gpus_are_as_many_processes() -> None:
    assert tree("trainer.n_gpus_per_node=8") == {"strategy": {"id": "ddp", "processes": 8}}


def test_a_critic_counts_where_the_estimator_has_one() -> None:
    critic = ("critic.model.path=x", "critic.optim.lr=1e-5", "trainer.critic_warmup=20")
    assert tree(*critic, "algorithm.adv_estimator=grpo") == {"algorithm": {"advantage": "grpo"}}
    table = {"model": "x", "learning_rate": 1e-5, "warmup_steps": 20}
    assert tree(*critic, "algorithm.adv_estimator=gae") == {"algorithm": {"advantage": "gae"}, "critic": table}
    assert tree("algorithm.adv_estimator=gae") == {"algorithm": {"advantage": "gae"}, "critic": {"model": "copy"}}


def test_our_own_critic_is_left_to_our_own_words() -> None:
    reading = read_words(["critic.learning_rate=1e-3", "critic.warmup_steps=2"], VERL)
    assert reading.own == ["critic.learning_rate=1e-3", "critic.warmup_steps=2"]
    assert reading.layer.problems == ()


@pytest.mark.parametrize(
    ("estimator", "ours"),
    [("reinforce_plus_plus_baseline", "reinforce-plus-plus-baseline"), ("grpo_passk", "pass-at-k"), ("opo", "opo")],
)
def test_estimators_have_our_names(estimator: str, ours: str) -> None:
    assert tree(f"algorithm.adv_estimator={estimator}") == {"algorithm": {"advantage": ours}}


def test_a_kl_in_the_reward_is_weighed_by_its_own_coefficient() -> None:
    reward = ("algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.kl_coef=0.01", "algorithm.kl_penalty=kl")
    kl = {"target": "reward", "coefficient": 0.01, "estimator": "kl"}
    assert tree(*reward, f"{ACTOR}.kl_loss_coef=0.5", f"{ACTOR}.use_kl_loss=False") == {"algorithm": {"kl": kl}}
    assert tree("algorithm.use_kl_in_reward=False", *reward[1:]) == {}
    assert "one KL term" in complaints(reward[0], f"{ACTOR}.use_kl_loss=True")[0][2]


def test_losses_clips_and_filters_have_our_names() -> None:
    actor = ("clip_ratio=0.1", "clip_ratio_c=3.0", "loss_agg_mode=seq-mean-token-sum", "policy_loss.loss_mode=vanilla")
    assert tree(*(f"{ACTOR}.{word}" for word in actor)) == {
        "algorithm": {
            "clip_low": 0.1,
            "clip_high": 0.1,
            "dual_clip": 3.0,
            "aggregation": "seq-mean-token-sum",
            "loss": "clip",
        }
    }
    groups = "algorithm.filter_groups"
    words = (f"{groups}.enable=True", f"{groups}.metric=seq_reward", f"{groups}.max_num_gen_batches=10")
    assert tree(*words) == {"algorithm": {"filter": {"metric": "reward", "max_extra_batches": 9}}}
    assert tree(*words[1:]) == {"algorithm": {"filter": {"metric": "none"}}}
    assert "never end" in complaints(f"{groups}.max_num_gen_batches=0")[0][2]


@pytest.mark.parametrize(
    ("words", "coefficient"),
    [
        (("use_kl_loss=True", "kl_loss_coef=0.01"), 0.01),
        (("kl_loss_coef=0.01", "use_kl_loss=True"), 0.01),
        (("use_kl_loss=True",), 0.001),
        (("use_kl_loss=False", "kl_loss_coef=0.01"), 0.0),
        (("kl_loss_coef=0.01",), 0.0),
    ],
)
def test_the_kl_counts_where_use_kl_loss_says_so(words: tuple[str, ...], coefficient: float) -> None:
    layer = read_words([f"{ACTOR}.{word}" for word in words], VERL).layer
    assert layer.problems == ()
    assert layer.tree == {"algorithm": {"kl": {"coefficient": coefficient}}}


def test_a_switch_of_the_kl_that_is_no_switch_is_refused() -> None:
    assert complaints(f"{ACTOR}.use_kl_loss=maybe")[0][:2] == ("refused", f"{ACTOR}.use_kl_loss")


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
    words = ["data.train_batch_size=32", siblings, f"{ACTOR}.ppo_mini_batch_size={mini_batch}"]
    assert read_words(words, VERL).layer.tree["trainer"]["updates_per_rollout"] == updates


def test_mini_batches_that_do_not_divide_are_refused() -> None:
    batch = ("data.train_batch_size=32", "agent.num_chains=8")
    for words in ((*batch, f"{ACTOR}.ppo_mini_batch_size=48"), (f"{ACTOR}.ppo_mini_batch_size=32",)):
        assert complaints(*words)[0][:2] == ("refused", f"{ACTOR}.ppo_mini_batch_size")


@pytest.mark.parametrize(("name", "id"), [("exact_match", "exact-match"), ("my_code.py:my_one", "my_code.py:my_one")])
def test_a_reward_name_becomes_the_one_reward(name: str, id: str) -> None:
    assert read_words([f"agent.reward_name={name}"], VERL).layer.tree == {"reward": [{"id": id}]}


def test_never_is_minus_one_there_and_zero_here() -> None:
    layer = read_words(["trainer.test_freq=-1", "trainer.save_freq=-1"], VERL).layer
    assert layer.tree == {"evaluation": {"every": 0}, "checkpoint": {"every": 0}}


def test_our_own_words_stand_on_top_wherever_they_stand() -> None:
    reading = read_words(["model=here", "agent.model_name_or_path=there", "agent.template=plain"], VERL)
    assert reading.lines[0].endswith("(but model=here stands above it)")
    assert reading.lines[1] == 'agent.template=plain -> model.chat_format = "plain"'


def test_hydras_plus_signs_change_nothing() -> None:
    assert read_words(["+agent.num_chains=8"], VERL).layer.tree == read_words(["agent.num_chains=8"], VERL).layer.tree


def test_a_near_miss_gets_a_suggestion_and_an_unknown_word_no_guess() -> None:
    found = complaints(f"{ACTOR}.kl_los_type=mse", "actor_rollout_ref.nothing.like_it=1")
    assert found[0] == ("unknown key", f"{ACTOR}.kl_los_type", f"did you mean {ACTOR}.kl_loss_type ?")
    assert found[1][2] == "of verl's keys this one has no meaning here"


def test_an_unknown_word_that_is_a_secret_is_not_repeated() -> None:
    (problem,) = read_words(["agent.api_key=abc123"], VERL).layer.problems
    assert "abc123" not in str(problem)


def test_no_word_of_the_vocabulary_is_a_key_of_ours() -> None:
    assert not set(VERL.meanings) & set(keys_of(RunConfig))


def test_mistakes_in_foreign_words_are_shown_together_with_all_others(rlcore: Callable[..., Any]) -> None:
    result = rlcore("run", "-p", "toy", "--dry-run", "trainer.nnodes=2", "trainer.save_frq=5", "seed=no")
    assert result.status == 2
    assert "3 problems" in result.err
    assert "refused      trainer.nnodes = 2\n      from command line: trainer.nnodes=2\n" in result.err
    assert "did you mean trainer.save_freq ?" in result.err
    assert "bad value    seed = 'no'" in result.err
