"""Real games, played by scripted policies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from rl_plugin_textarena.config import DataConfig, EnvironmentConfig
from rl_plugin_textarena.dataset import HELD_OUT, Seeds
from rl_plugin_textarena.environment import TextArena
from rl_plugin_textarena.games import Game, GameError, Result, State, check_game
from rlcore.episodes.context import EpisodeContext
from rlcore.errors import EnvironmentFailure, UserError
from rlcore.testing.episodes import LONGEST_EPISODE
from rlcore.testing.harnesses import SilentPolicy
from rlcore.types import Message, Response, Step, Task

Choose = Callable[[Sequence[Message]], str]
FIRST_FREE: Choose = lambda messages: messages[-1].text.rpartition("Available Moves: '")[2].partition("'")[0]  # noqa: E731


class Scripted(SilentPolicy):
    """A policy whose answers are chosen by a function, in all roles."""

    def __init__(self, choose: Choose) -> None:
        super().__init__(LONGEST_EPISODE)
        self._choose = choose
        self.asked: list[Sequence[Message]] = []
        self.rewards: list[float] = []
        self.roles: dict[str, Scripted] = {}

    async def respond(self, messages: Sequence[Message], **options: Any) -> Response:
        turn, completion = await super().respond(messages, **options)
        self.asked.append(tuple(messages))
        message = replace(completion.message, content=self._choose(messages))
        return Response(turn, replace(completion, message=message))

    def reward(self, value: float, *, turn: int | None = None) -> None:
        self.rewards.append(value)

    def role(self, name: str) -> Scripted:
        return self.roles.setdefault(name, Scripted(self._choose))


def played(task: Task, choose: Choose, *, max_turns: int = 50) -> tuple[Scripted, Step]:
    async def episode() -> Step:
        environment = TextArena(EnvironmentConfig(max_turns=max_turns))
        with closing(EpisodeContext(task)) as context:
            try:
                return await environment.run(task, policy=policy, seed=5, context=context)
            finally:
                await environment.close()

    policy = Scripted(choose)
    return policy, asyncio.run(episode())


def tasks(split: str = "train", **options: Any) -> list[Task]:
    return Seeds(DataConfig(**{"train": 4, "evaluation": 2, **options})).tasks(split)


def test_seat_alternates_and_the_result_is_the_reward_of_the_seat() -> None:
    for number, task in enumerate(tasks()):
        policy, step = played(task, FIRST_FREE)
        ((role, player),) = policy.roles.items()
        assert role == f"player-{number % 2}"
        assert player.rewards in ([1.0], [0.0], [-1.0])
        assert step.terminated
        assert step.info["moves"] >= 5
        assert all(len(messages) == 1 for messages in player.asked)  # each turn shows the whole state
        assert f"You are Player {number % 2}" in player.asked[0][0].text


def test_self_play_asks_both_roles_and_their_rewards_are_opposite() -> None:
    policy, _ = played(tasks(opponent="self", game="TicTacToe-v0")[0], FIRST_FREE)
    first, second = policy.roles["player-0"], policy.roles["player-1"]
    assert first.rewards == [-second.rewards[0]] == [1.0]
    assert [len(messages) for messages in first.asked] == [1, 3, 5, 7]  # a conversation grows
    assert "[Player 1] [1]" in first.asked[1][2].text
    assert tasks("evaluation", opponent="self")[0].fields["opponent"] == "random"


def test_equal_tasks_are_equal_games() -> None:
    task = tasks("evaluation")[1]
    assert task.fields["seed"] == HELD_OUT + 1
    first, again = (played(task, FIRST_FREE)[0].roles["player-1"].asked for _ in range(2))
    assert first == again
    other = played(tasks("train")[1], FIRST_FREE)[0].roles["player-1"].asked
    assert first != other


def test_single_player_games_have_no_roles() -> None:
    low, high = 1, 9

    def bisect(messages: Sequence[Message]) -> str:
        nonlocal low, high
        guess, said = (low + high) // 2, messages[-1].text
        if "target number" in said:
            low, high = (guess + 1, high) if "higher" in said else (low, guess - 1)
        return f"[{(low + high) // 2}]"

    arguments = {"min_number": 1, "max_number": 9}
    policy, step = played(tasks(game="GuessTheNumber-v0", arguments=arguments, rules="1 to 9")[0], bisect)
    assert policy.rewards == [1.0]
    assert not policy.roles
    assert policy.asked[0][0].text == "1 to 9"
    assert "Congratulations" in step.observation.messages[0].text


def test_illegal_moves_lose_and_so_does_a_player_that_stops_to_answer() -> None:
    policy, step = played(tasks()[0], lambda messages: "I resign")
    assert (policy.roles["player-0"].rewards, step.info["illegal"]) == ([-1.0], 1.0)
    assert policy.roles["player-0"].turns == 2  # the game tolerates one illegal move
    policy, step = played(tasks(opponent="self")[0], FIRST_FREE, max_turns=2)
    assert [role.rewards for role in policy.roles.values()] == [[-1.0], [1.0]]
    assert "did not answer" in step.observation.messages[0].text


def test_demonstrations_are_legal_moves() -> None:
    shown = list(Seeds(DataConfig(game="TicTacToe-v0-train", rules="")).demonstrations(6, seed=0))
    assert len(shown) == 6
    for demonstration in shown:
        question, move = demonstration.messages
        assert f"'{move.text}'" in question.text


def test_wrong_names_and_arguments_are_errors_before_a_run() -> None:
    with pytest.raises(UserError) as caught:
        check_game("TicTacTo-v0")
    assert "did you mean 'TicTacToe-v0'?" in str(caught.value)
    with pytest.raises(UserError, match="cannot be made") as caught:
        tasks(arguments={"size": 3})
    assert "unexpected keyword argument" in str(caught.value)


@pytest.mark.slow
@pytest.mark.usefixtures("misbehaving")
@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("exit", "the process of the game ended"),
        ("sleep", "the process of the game ended"),
        ("loop", "the process of the game ended"),
        ("allocate", "MemoryError"),
        ("raise", "SystemExit: bye"),
    ],
)
def test_games_that_fail_end_alone(does: str, said: str) -> None:
    with Game("TicTacToe-v0", {}, None, 0) as beside:
        with Game(f"Hostile-{does}", {}, None, 0) as game, pytest.raises(GameError) as caught:
            game.move("[0]")
        assert said in caught.value.message
        assert isinstance(beside.move("[4]"), State)


@pytest.mark.slow
@pytest.mark.usefixtures("misbehaving")
def test_lies_about_players_are_errors_and_a_host_that_ends_is_replaced() -> None:
    for does, said in {"players": "for one or two players, but has 1000000000", "player": "turn of player 7"}.items():
        with pytest.raises(GameError) as caught:
            Game(f"Hostile-{does}", {}, None, 0)
        assert said in caught.value.message
    with Game("Hostile-end host", {}, None, 0) as running:
        assert isinstance(running.move("[0]"), State)
        time.sleep(0.5)  # until the host has ended
        with Game("TicTacToe-v0", {}, None, 0) as other:  # while a game of the old host runs
            assert isinstance(other.now, State)


@pytest.mark.slow
@pytest.mark.usefixtures("misbehaving")
def test_output_and_long_texts_of_games_are_harmless() -> None:
    with Game("Hostile-print", {}, None, 0) as game:
        assert isinstance(game.move("[0]"), State)
    with Game("Hostile-huge", {}, None, 0) as game:
        state = game.move("[0]")
        assert isinstance(state, State)
        assert len(state.text) <= 200_000
    with Game("Hostile-nan", {}, None, 0) as game:
        assert isinstance(game.move("[0]"), Result)


def test_a_game_that_fails_is_a_failure_of_the_episode() -> None:
    task = tasks()[0]
    broken = Task(id="x", messages=(), fields={**task.fields, "arguments": {"size": 3}})
    with pytest.raises(EnvironmentFailure, match="unexpected keyword argument"):
        played(broken, FIRST_FREE)


@pytest.mark.slow
@pytest.mark.usefixtures("misbehaving")
def test_an_episode_that_is_cancelled_does_not_wait_for_its_game() -> None:
    game = Game("Hostile-sleep", {}, None, 0)
    errors: list[str] = []

    def wait() -> None:
        try:
            game.move("[0]")
        except GameError as error:
            errors.append(error.message)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.2)
    before = time.monotonic()
    game.close()
    waiting.join()
    assert time.monotonic() - before < 1
    assert errors == ["the process of the game ended"]
