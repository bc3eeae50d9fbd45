"""``rlcore doctor``: judge a right and a wrong answer with every server of a judge."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rlcore import event_loop
from rlcore.checks import Finding
from rlcore.errors import UserError
from rlcore.testing import make_trajectory
from rlcore.types import Message, RewardResult, Task

from rl_plugin_llm_judge.config import JudgeConfig
from rl_plugin_llm_judge.judge import Judge

QUESTION, EXPECTED = "What is the colour of the umbrella?", "yellow"
RIGHT, WRONG = "The umbrella is yellow.", "It is dark green."
ENOUGH = 0.5
"""The score of the right answer is above it, that of the wrong answer below."""


def probe(config: JudgeConfig) -> Iterator[Finding]:
    """One finding for each server: its verdicts on a right and a wrong answer."""
    plain = {
        "compare_first": False,
        "extract": "response",
        "field": "answer",
        "aliases_field": "",
        "question_field": "",
    }
    for url in config.base_url:
        yield _probed(config.model_copy(update={**plain, "base_url": [url]}), f"{config.model} at {url}")


def _probed(config: JudgeConfig, named: str) -> Finding:
    started = time.monotonic()
    try:
        right, wrong = event_loop.run(_verdicts(Judge(config)))
    except UserError as error:
        return Finding(status="fail", text=f"{named}: {error.message}: {error.found or ''}", fix=error.fix or "")
    for result in (right, wrong):
        if result.value is None:
            return Finding(status="fail", text=f"{named}: {result.error}", fix=_fix(result.error_kind))
    assert right.value is not None
    assert wrong.value is not None
    found = f"{named}: a right answer scores {right.value:g}, a wrong one {wrong.value:g}"
    if right.value > ENOUGH > wrong.value:
        return Finding(status="ok", text=f"{found} ({time.monotonic() - started:.1f} s)")
    fix = "use a larger model, another template, or other examples"
    return Finding(status="fail", text=f"{found} (expected {QUESTION!r}, {EXPECTED!r}: {RIGHT!r}, {WRONG!r})", fix=fix)


async def _verdicts(judge: Judge) -> list[RewardResult]:
    """The verdicts on the right and the wrong answer, or the error of an endpoint that cannot answer at all."""
    task = Task(id="probe", messages=(Message(role="user", content=QUESTION),), fields={"answer": EXPECTED})
    try:
        found = [await judge(make_trajectory(*task.messages, text), task) for text in (RIGHT, WRONG)]
        if judge.refusal is not None:
            raise judge.refusal
        return found
    finally:
        await judge.close()


def _fix(kind: str) -> str:
    if kind == "unclear verdict":
        return "use another model or template, or a higher max_tokens for one that reasons"
    if kind in {"rejected request", "content filter"}:
        return "correct what the server refuses, such as a max_tokens or a question that is too long for it"
    return "check the log of the server, or set a higher timeout_s and deadline_s"
