"""A frozen model as the other player: ``rlcore serve policy`` answers for it, in a process that all episodes share."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from rlcore.endpoints.client import ChatEndpoints
from rlcore.endpoints.failures import EndpointFailure
from rlcore.endpoints.options import EndpointTable
from rlcore.errors import EnvironmentFailure
from rlcore.transport.network import TOKEN
from rlcore.types import Message

STARTING_S, LOOK_S = 300.0, 0.1
"""Limit of the time to load the model, and the time between looks whether it is loaded."""
ADDRESS = re.compile(r"OPENAI_BASE_URL=(\S+)")
KEY = "RL_TEXTARENA_OPPONENT_KEY"
"""The variable with the key, which only this machine's server knows."""
ENDS_WITH_US = 'exec 3<&0; "$@" </dev/null & p=$!; (cat <&3 >/dev/null; kill -9 $p) & wait $p; kill $!'
"""Runs a program until it ends or the input closes, which also happens when this process is killed."""
MOST_TOKENS = 2**20
"""More than the limit of the model's own run, which therefore holds."""


class FrozenPolicy:
    """A model that is not trained.

    Args:
        model: a folder, or a run or one of its checkpoints

    Raises:
        EnvironmentFailure: it cannot be loaded.
    """

    def __init__(self, model: str) -> None:
        os.environ.setdefault(KEY, f"rl-{secrets.token_urlsafe(24)}")
        command = [
            "sh",
            "-c",
            ENDS_WITH_US,
            "sh",
            sys.executable,
            "-m",
            "rlcore",
            "serve",
            "policy",
            model,
            "--port",
            "0",
        ]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            env=os.environ | {TOKEN: os.environ[KEY]},
            start_new_session=True,  # Ctrl-C lets the games of a step end
        )
        weakref.finalize(self, _ended, self._process, os.getpid())
        self._url = self._started(model)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, ChatEndpoints] = WeakKeyDictionary()

    async def answer(self, messages: Sequence[Message]) -> str:
        """The text of an answer. Raises `EnvironmentFailure`."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            table = EndpointTable(model="opponent", base_url=[self._url], api_key_env=KEY, concurrency=256)
            self._clients[loop] = ChatEndpoints(table)
        asked = [{"role": message.role, "content": message.text} for message in messages]
        try:
            return (await self._clients[loop].ask(asked, max_tokens=MOST_TOKENS)).text
        except EndpointFailure as error:
            raise EnvironmentFailure(f"the opponent does not answer: {error}") from error

    def _started(self, model: str) -> str:
        ends, printed = time.monotonic() + STARTING_S, ""
        while time.monotonic() < ends:
            is_running = self._process.poll() is None
            printed = os.pread(self._output.fileno(), 1 << 16, 0).decode("utf-8", "replace")
            if found := ADDRESS.search(printed):
                return found[1]
            if not is_running:
                break
            time.sleep(LOOK_S)
        raise EnvironmentFailure(f"the opponent {model!r} cannot be loaded: {printed[-500:].strip()}")


_loaded: dict[tuple[str, int], FrozenPolicy] = {}
_loading = threading.Lock()


def frozen_policy(model: str) -> FrozenPolicy:
    """The policy of a model, which is loaded once in each of our processes. Raises as `FrozenPolicy`."""
    key = os.path.abspath(model), os.getpid()
    with _loading:
        if key not in _loaded:
            _loaded[key] = FrozenPolicy(model)
        return _loaded[key]


def _ended(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:  # not in a fork
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


__all__ = ["FrozenPolicy", "frozen_policy"]
