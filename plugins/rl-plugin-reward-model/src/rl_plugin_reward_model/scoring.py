"""The process of a reward model: conversations that wait are sent to it together, by a thread of their own."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.json_files import parse_answer

from rl_plugin_reward_model.config import RewardModelConfig

CLOSING_S = 600.0
"""Time for the process to score what waits when a run ends. A CPU may need minutes; a process that hangs never ends."""
MOST = 256
"""Most conversations that are sent together."""
Waiting = tuple[str, Future[float]]
"""A conversation as JSON, and its future score."""


class ScoringFailed(Exception):
    """A conversation has no score."""


class Scorer:
    """Scores conversations in another process, which is started with the first one.

    Args:
        folder: a checked folder of a reward model
        config: the options of the reward

    Attributes:
        refusal: the reason why the process cannot load the model; None if there is none
    """

    def __init__(self, folder: Path, config: RewardModelConfig) -> None:
        self._arguments = [str(folder), config.device, config.dtype, config.chat_format, str(config.tokens_per_batch)]
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._process = _Process(self._arguments)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.refusal: UserError | None = None

    def submit(self, conversation: dict[str, Any]) -> Future[float]:
        """Return the future score of a conversation, which may be a `ScoringFailed`."""
        found: Future[float] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="reward model", daemon=True)
                self._thread.start()
            self._queue.put((json.dumps(conversation), found))
        return found

    def close(self) -> None:
        """Score what waits, and end the thread and the process."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._queue.put(None)
        thread.join(CLOSING_S)
        if thread.is_alive():
            self._process.kill()
            thread.join()

    def _work(self) -> None:
        process = self._process
        try:
            while (first := self._queue.get()) is not None:
                waiting, ends = [first], False
                with suppress(queue.Empty):
                    while len(waiting) < MOST and not ends:
                        following = self._queue.get_nowait()
                        if following is None:
                            ends = True
                        else:
                            waiting.append(following)
                self._score(process, [one for one in waiting if one[1].set_running_or_notify_cancel()])
                if ends:
                    return
        finally:
            process.end()

    def _score(self, process: _Process, waiting: list[Waiting]) -> None:
        """Set the score of each conversation, or its error."""
        try:
            answers = process.ask([conversation for conversation, _ in waiting]) if waiting else []
        except UserError as error:
            self.refusal, answers = error, [str(error.message)] * len(waiting)
        except (OSError, ValueError) as error:
            process.end()
            answers = [f"the process of the reward model failed: {error}"] * len(waiting)
        for (_, found), answer in zip(waiting, answers, strict=True):
            if isinstance(answer, float):
                found.set_result(answer)
            else:
                found.set_exception(ScoringFailed(str(answer)))


class _Process:
    """A process that answers a line of conversations with a line of scores."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, conversations: list[str]) -> list[object]:
        """Return a score or an error for each conversation.

        Raises:
            UserError: the process cannot load the model.
            OSError: the process ended.
            ValueError: its answer cannot be read.
        """
        if self._process is None:
            self._process = self._started()
        answer = self._exchange(f"[{', '.join(conversations)}]")
        scores = answer.get("scores") if isinstance(answer, dict) else None
        if not isinstance(scores, list) or len(scores) != len(conversations):
            raise ValueError("its answer has no score for each conversation")
        return scores

    def end(self) -> None:
        """End the process, which stops when its input ends."""
        if self._process is None:
            return
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Kill the process, for which another thread waits."""
        if (process := self._process) is not None:
            process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        # In a session of its own, so that Ctrl-C ends the run and not the process that scores its last episodes.
        process = subprocess.Popen(
            [sys.executable, "-m", "rl_plugin_reward_model.worker", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._process = process
        answer = self._exchange(None)
        if isinstance(answer, dict) and "failure" in answer:
            self.end()
            raise UserError("the reward model cannot be loaded", found=str(answer["failure"]), where=self._arguments[0])
        return process

    def _exchange(self, line: str | None) -> object:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if line is not None:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise OSError(f"it ended with status {self._process.wait()}")
        return parse_answer(answer)
