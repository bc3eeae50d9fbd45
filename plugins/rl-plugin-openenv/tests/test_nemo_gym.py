"""Resources servers with the routes of NeMo Gym: a faithful one, and those that break the protocol."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rl_plugin_openenv.config import RowsConfig, ServerTable
from rl_plugin_openenv.nemo_gym import ResourcesServer
from rl_plugin_openenv.nemo_gym_demo import DemoHandler
from rl_plugin_openenv.nemo_gym_rows import Rows
from rlcore import event_loop
from rlcore.errors import DataError, EnvironmentFailure
from rlcore.types import Message, Observation, Step, Stop, ToolCall

TASKS = Rows(RowsConfig()).tasks("train")


def press(times: Any, name: str = "press") -> Message:
    return Message(role="assistant", content="now", tool_calls=(ToolCall(name=name, arguments={"times": times}),))


async def play(
    actions: list[Message], url: str = "demo", number: int = 3, cut: Sequence[Message | None] = (), **options: Any
) -> list[Step]:
    environment = ResourcesServer(ServerTable(url=url, **options))
    try:
        first: Observation = await environment.reset(TASKS[number], seed=0)
        assert [tool.name for tool in first.tools] == ["press"]
        steps = [await environment.step(action) for action in actions]
        return [*steps, *[await environment.cut(written) for written in cut]]
    finally:
        await environment.close()


def test_sessions_keep_apart_and_are_verified() -> None:
    async def together() -> list[float | None]:
        wanted = [task.fields["row"]["wanted"] for task in TASKS]
        actions = [
            [press(count + number % 2), Message(role="assistant", content="done")]
            for number, count in enumerate(wanted)
        ]
        played = await asyncio.gather(*(play(each, number=number) for number, each in enumerate(actions)))
        assert all(first.reward is None and last.terminated for first, last in played)
        return [last.reward for _, last in played]

    assert event_loop.run(together()) == [float(number % 2 == 0) for number in range(len(TASKS))]


def test_episode_is_verified_after_the_last_turn_and_when_it_is_cut() -> None:
    right = press(TASKS[3].fields["row"]["wanted"])
    (step,) = event_loop.run(play([right], max_turns=1))
    assert (step.reward, step.terminated, step.stop) == (1.0, False, Stop.MAX_TURNS)
    assert event_loop.run(play([right], cut=[Message(role="assistant", content="I pre")]))[-1].reward == 1.0
    assert event_loop.run(play([], cut=[None]))[-1].reward == 0.0


def test_model_sees_what_is_wrong_with_a_call() -> None:
    actions = [press("many"), press(1, "verify"), press(1, "pres")]
    steps = event_loop.run(play(actions))
    texts = [step.observation.messages[0].text for step in steps]
    assert "must be an integer" in texts[0]
    assert texts[1] == "Error: there is no tool 'verify'. The tools are: press."
    assert "did you mean 'press'?" in texts[2]
    assert all(step.reward is None and not step.terminated for step in steps)


class Recording(DemoHandler):
    """Keeps what is verified, and answers it as a test says."""

    verified: ClassVar[list[Any]] = []
    said: ClassVar[Any] = {"reward": 0.25, "reward_components": {"speed": 0.5, "bad": "x"}}

    def do_POST(self) -> None:
        if self.path != "/verify":
            super().do_POST()
            return
        self.verified.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if isinstance(self.said, bytes):
            self.wfile.write(self.said)
            self.close_connection = True
        else:
            self.answer(self.said.pop("status", 200) if isinstance(self.said, dict) else 200, self.said)


@contextmanager
def served(handler: type[DemoHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_conversation_is_verified_as_a_response() -> None:
    with served(Recording) as url:
        _, last = event_loop.run(play([press(2), Message(role="assistant", content="done \ud800")], url))
    assert (last.reward, last.info["component/speed"], "component/bad" in last.info) == (0.25, 0.5, False)
    request = Recording.verified[-1]
    assert request["wanted"] == TASKS[3].fields["row"]["wanted"]
    assert request["responses_create_params"]["input"][0]["role"] == "user"
    kinds = [item["type"] for item in request["response"]["output"]]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    call, output = request["response"]["output"][1:3]
    assert (call["name"], json.loads(call["arguments"]), call["call_id"]) == ("press", {"times": 2}, output["call_id"])
    assert output["output"] == '{"pressed": true}'
    assert request["response"]["output"][3]["content"][0]["text"] == "done \ufffd"


@pytest.mark.parametrize(
    ("said", "reported"),
    [
        ({"status": 500, "detail": "broken"}, "status 500"),
        ({}, "the reward None"),
        ({"reward": "1"}, "the reward '1'"),
        ({"reward": float("nan")}, "the reward nan"),
        ({"reward": True, "status": 302}, "status 302"),
        ([1], "the reward None"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{{{", "not JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b" " * (17 * 2**20), "longer than 16 MiB"),
        (b"", "closed the connection"),
    ],
)
def test_faults_of_a_verification_are_failures(said: Any, reported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recording, "said", said)
    with served(Recording) as url, pytest.raises(EnvironmentFailure, match=re.escape(reported)):
        event_loop.run(play([Message(role="assistant", content="done")], url))


ASKED = {"input": "hi", "tools": [{"type": "function", "name": "a", "parameters": {}}]}


def test_rows_of_files_are_read(tmp_path: Path) -> None:
    parts = [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]
    items = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    file = tmp_path / "rows.jsonl"
    rows = [{"responses_create_params": ASKED, "x": 1}, {"responses_create_params": {"input": items}}]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    first, second = Rows(RowsConfig(train=str(file))).tasks("train")
    assert (first.id, first.messages[0].text, first.fields["row"]["x"]) == ("rows:1", "hi", 1)
    assert [(message.role, message.text) for message in second.messages] == [
        ("system", "be brief"),
        ("user", "one\ntwo"),
    ]


@pytest.mark.parametrize(
    ("row", "fragment"),
    [
        ("[1]", "responses_create_params"),
        ("{", "valid JSON"),
        ('{"responses_create_params": {"input": []}}', "needs an input"),
        ('{"responses_create_params": {"input": [{"type": "function_call"}]}}', "messages with text"),
        ('{"responses_create_params": {"input": "x", "tools": [{"name": "verify"}]}}', "name of a route"),
    ],
)
def test_damaged_rows_are_errors_with_their_line(row: str, fragment: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"responses_create_params": ASKED}) + "\n" + row, encoding="utf-8")
    with pytest.raises(DataError, match=fragment) as error:
        Rows(RowsConfig(train=str(file))).tasks("train")
    assert error.value.where == f"{file}, line 2"
