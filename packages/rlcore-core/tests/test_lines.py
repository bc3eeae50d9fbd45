"""Processes that answer lines, and misbehave."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from rlcore.transport.lines import LineProcess
from rlcore.transport.remote import Ended

CHILD = """
import json, os, signal, sys, time
answers = os.fdopen(os.dup(0), "w")
for line in sys.stdin:
    does = json.loads(line)
    print("it was asked to", does, flush=True)
    if does == "leave": sys.exit(3)
    if does == "crash": os.kill(os.getpid(), signal.SIGSEGV)
    if does == "sleep": time.sleep(60)
    if does == "long": answers.write("1" * 10_000)
    if does == "noise": print("\\xff" * 1_000_000)
    print("{" if does == "nonsense" else json.dumps([os.getpid(), does]), file=answers, flush=True)
"""


def child() -> LineProcess:
    return LineProcess([sys.executable, "-c", CHILD], os.environ, longest=1000)


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("leave", "ended with exit status 3"),
        ("crash", "was ended by SIGSEGV"),
        ("sleep", "did not answer within 0.5 s"),
        ("long", "sent a line of more than 1,000 bytes"),
        ("nonsense", "sent a line that is not JSON"),
    ],
)
def test_a_process_that_fails_is_ended_and_the_next_question_starts_another(does: str, reason: str) -> None:
    asked = child()
    first = asked.ask("answer")
    assert first == [*first[:1], "answer"] == asked.ask("answer")
    with pytest.raises(Ended) as ended:
        asked.ask(does, 0.5 if does == "sleep" else 60)
    text = str(ended.value)
    assert text.startswith(reason)
    assert "it printed last: " in text
    assert text.endswith(f"asked to {does}")
    again, _ = asked.ask("noise")
    assert again != first[0]
    asked.close()
    assert asked.ask("answer")[0] != again


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(Ended, match=r"cannot be started: .*No such file"):
        LineProcess([str(tmp_path / "none")], {}, longest=10).ask(1)


def test_a_question_that_is_not_read_is_late() -> None:
    deaf = LineProcess([sys.executable, "-c", "import time; time.sleep(60)"], os.environ, longest=10)
    with pytest.raises(Ended, match=r"did not answer within 0\.2 s"):
        deaf.ask("x" * 10_000_000, 0.2)


def test_a_fork_asks_a_process_that_belongs_to_it() -> None:
    asked = child()
    (number, _), fork = asked.ask("answer"), os.fork()
    if not fork:
        os._exit(asked.ask("answer")[0] == number)
    assert os.waitpid(fork, 0)[1] == 0
    assert asked.ask("answer")[0] == number


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, a process ends when it reads the next line")
def test_a_process_that_never_reads_ends_with_a_killed_parent() -> None:
    code = f"""
        import os, sys, threading
        from rlcore.transport.lines import LineProcess
        asked = LineProcess([sys.executable, "-c", {CHILD!r}], os.environ, longest=1000)
        print(asked.ask("answer")[0], flush=True)
        asked.ask("sleep")
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        time.sleep(0.2)
        parent.kill()
    end = time.monotonic() + 10
    while os.path.exists(f"/proc/{process}/exe") and time.monotonic() < end:  # a zombie has none
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{process}/exe")
