"""The process of a reward model: conversations that wait are sent to it together, by a thread of their own."""

from __future__ import annotations

import os
import queue
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.transport.lines import LineProcess
from rlcore.transport.remote import Ended

from rl_plugin_reward_model.config import RewardModelConfig

CLOSING_S = 600.0
"""Time for the process to score what waits when a run ends. A CPU may need minutes; a process that hangs never ends."""
MOST = 256
"""Most conversations that are sent together."""
LONGEST_ANSWER = 1 << 20
"""Limit of the scores of `MOST` conversations in bytes."""
Waiting = tuple[dict[str, Any], Future[float]]
"""A conversation, and its future score."""


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
        arguments = [str(folder), config.device, config.dtype, config.chat_format, str(config.tokens_per_batch)]
        command = [sys.executable, "-m", "rl_plugin_reward_model.worker", *arguments]
        self._folder, self._process = folder, LineProcess(command, os.environ, longest=LONGEST_ANSWER)
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
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
            self._queue.put((conversation, found))
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
                self._score([one for one in waiting if one[1].set_running_or_notify_cancel()])
                if ends:
                    return
        finally:
            self._process.close()

    def _score(self, waiting: list[Waiting]) -> None:
        """Set the score of each conversation, or its error."""
        if not waiting:
            return
        try:
            answers = self._answers([conversation for conversation, _ in waiting])
        except (Ended, ValueError) as error:
            self._process.kill()
            answers = [f"the process of the reward model failed: it {error}"] * len(waiting)
        for (_, found), answer in zip(waiting, answers, strict=True):
            if isinstance(answer, float):
                found.set_result(answer)
            else:
                found.set_exception(ScoringFailed(str(answer)))

    def _answers(self, conversations: list[dict[str, Any]]) -> list[object]:
        """Return a score or an error for each conversation.

        Raises:
            Ended: the process ended.
            ValueError: its answer has no scores.
        """
        answer = self._process.ask(conversations)
        if isinstance(answer, dict) and "failure" in answer:
            self._process.close()
            found, where = str(answer["failure"]), str(self._folder)
            self.refusal = UserError("the reward model cannot be loaded", found=found, where=where)
            return [self.refusal.message] * len(conversations)
        scores = answer.get("scores") if isinstance(answer, dict) else None
        if not isinstance(scores, list) or len(scores) != len(conversations):
            raise ValueError("sent an answer without a score for each conversation")
        return scores
