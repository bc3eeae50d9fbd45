"""A process of another interpreter that misbehaves. Whatever it does, the caller gets an `EnvironmentFailure`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlcore.errors import EnvironmentFailure, ToolFailure, UserError
from rlcore.transport import Interpreter
from rlcore.transport.inside import messages
from rlcore.transport.inside.messages import BrokenMessage
from rlcore.transport.inside.stream import Receiver
from rlcore.transport.inside.values import NotSendable, Parts, decode, encode
from rlcore.transport.variables import variables_for_child

FUNCTIONS = """
    import os, socket, subprocess, sys, time

    def echo(value): return value
    def variable(name): return os.environ.get(name)
    def prints():
        print("garbage" * 100_000)
        os.write(2, b"\\xff\\xfe{]")
        return "fine"
    def leaves(): os._exit(7)
    def exits(): sys.exit("enough")
    def recurses(): return recurses()
    def unsendable(): return {"deep": [object()]}
    def endless():
        value = []
        value.append(value)
        return value
    def too_long(): return "x" * (17 * 2**20)
    def connections():
        return [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)
                and "socket" in os.readlink("/proc/self/fd/" + name)]
    def raw(data, times=1):
        for _ in range(times):
            socket.socket(fileno=os.dup(connections()[0])).sendall(data)
        time.sleep(60)
    def closes():
        os.closerange(3, 100)
        time.sleep(60)
    def keeps_connection_open():
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=connections())
        os._exit(3)
    def stops():
        os.kill(os.getpid(), 19)
    class Counter:
        def __init__(self, start): self.count = start
        def add(self, number=1):
            self.count += number
            return self.count
        def fail(self):
            from rlcore.errors import ToolFailure
            raise ToolFailure("the camera is off")
        def refuse(self):
            from rlcore.errors import UserError
            raise UserError("no such scene", found="kitchen", fix="use table")
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("transport") / "functions.py"
    path.write_text(textwrap.dedent(FUNCTIONS), encoding="utf-8")
    return path


@pytest.fixture
def other() -> Iterator[Interpreter]:
    with Interpreter(sys.executable) as found:
        yield found


def fake_interpreter(folder: Path, code: str) -> Path:
    """A program that is started like an interpreter, and sends what it likes."""
    path = folder / "python"
    lines = f"""\
        #!{sys.executable}
        import os, struct, sys, time
        connection = 0
        {code}
        time.sleep(60)
        """
    path.write_text(textwrap.dedent(lines), encoding="utf-8")
    path.chmod(0o755)
    return path


def test_plain_values_and_bytes_return_as_they_were(other: Interpreter, functions: Path) -> None:
    value = {"a": [1, 2.5, None, True, "é\ud800"], "b": (b"\x00\xff", {3: "three", "$": 1}), "nan": float("inf")}
    assert other.call(f"{functions}:echo", value=value, timeout_s=30) == value


def test_large_value_of_an_odd_length_returns(other: Interpreter, functions: Path) -> None:
    value = b"x" * 100_001  # in shared memory, which is padded
    assert other.call(f"{functions}:echo", value=value, timeout_s=30) == value


def test_parts_of_a_message_do_not_overlap() -> None:
    once = {"$": "bytes", "at": 0, "size": 16}
    with pytest.raises(BrokenMessage, match="after byte 16"):
        decode([once, once], bytes(16))


def test_memory_grows_with_what_arrives() -> None:
    header = messages.HEADER.pack(messages.MAGIC, messages.VERSION, 16, messages.MOST_SHARED, 0)

    def read_into(buffer: memoryview) -> int:
        if header not in sent:
            sent.append(header)
            buffer[: len(header)] = header
            return len(header)
        raise EOFError

    sent: list[bytes] = []
    tracemalloc.start()
    with pytest.raises(EOFError):
        Receiver().receive(read_into)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_an_object_lives_from_call_to_call(other: Interpreter, functions: Path) -> None:
    other.create("object", f"{functions}:Counter", arguments={"start": 3}, timeout_s=30)
    assert [other.ask("add", timeout_s=30), other.ask("add", 5, timeout_s=30)] == [4, 9]
    with pytest.raises(EnvironmentFailure, match="not a public method"):
        other.ask("__class__", timeout_s=30)
    with pytest.raises(ToolFailure, match="the camera is off"):
        other.ask("fail", timeout_s=30)
    with pytest.raises(UserError) as refused:
        other.ask("refuse", timeout_s=30)
    assert (refused.value.message, refused.value.found, refused.value.fix) == ("no such scene", "kitchen", "use table")
    assert other.ask("add", timeout_s=30) == 10


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("exits", "SystemExit: enough"),
        ("recurses", "RecursionError"),
        ("unsendable", r"deep\[0\] is a object, which cannot be sent"),
        ("endless", "nested"),
        ("too_long", "bytes of text, the limit is"),
        ("missing", "has no attribute 'missing'"),
    ],
)
def test_a_call_that_fails_leaves_the_process_usable(
    other: Interpreter, functions: Path, name: str, reason: str
) -> None:
    with pytest.raises(EnvironmentFailure, match=reason):
        other.call(f"{functions}:{name}", timeout_s=30)
    assert other.call(f"{functions}:prints", timeout_s=30) == "fine"


HEADER = messages.HEADER.pack
MESSAGES = {
    "text": (b"hello, this is not a message", "expected a message, found the bytes b'hello"),
    "version": (HEADER(messages.MAGIC, 2, 2, 0, 0) + b"{}", "expected messages of version 1, found version 2"),
    "huge": (HEADER(messages.MAGIC, 1, 2**32 - 1, 0, 0), "4294967295 bytes of text, the limit is"),
    "huge arrays": (HEADER(messages.MAGIC, 1, 2, 0, 2**60) + b"{}", "bytes of shared arrays, the limit is"),
    "absent arrays": (HEADER(messages.MAGIC, 1, 2, 0, 10**6) + b"{}", "expected 1000000 bytes of shared memory"),
    "no json": (HEADER(messages.MAGIC, 1, 2, 0, 0) + b"{]", "not JSON"),
    "deep": (HEADER(messages.MAGIC, 1, 50_000, 0, 0) + b"[" * 50_000, "not JSON"),
    "digits": (HEADER(messages.MAGIC, 1, 9_000, 0, 0) + b"9" * 9_000, "not JSON"),
    "no object": (HEADER(messages.MAGIC, 1, 4, 0, 0) + b"null", "in place of an object"),
    "other id": (HEADER(messages.MAGIC, 1, 18, 0, 0) + b'{"id":9,"value":0}', "does not belong to the request"),
}


@pytest.mark.parametrize("sent", MESSAGES)
def test_bytes_that_are_no_answer_end_the_process(other: Interpreter, functions: Path, sent: str) -> None:
    data, reason = MESSAGES[sent]
    with pytest.raises(EnvironmentFailure, match=reason):
        other.call(f"{functions}:raw", data=data, timeout_s=30)
    with pytest.raises(EnvironmentFailure, match="has ended"):
        other.call(f"{functions}:echo", value=1, timeout_s=30)
    assert not other.usable


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("leaves", "ended with exit status 7"),
        ("keeps_connection_open", "ended with exit status 3"),
        ("closes", "closed its connection"),
        ("stops", "did not answer within 1 s"),
    ],
)
def test_a_process_that_ends_or_is_silent_is_a_failure(
    other: Interpreter, functions: Path, name: str, reason: str
) -> None:
    started = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=reason):
        other.call(f"{functions}:{name}", timeout_s=1 if name == "stops" else 30)
    assert time.monotonic() - started < 20


def test_a_process_that_was_killed_between_two_calls_is_named(other: Interpreter, functions: Path) -> None:
    child = other.call("os:getpid", timeout_s=30)
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    with pytest.raises(EnvironmentFailure, match="was ended by SIGKILL"):
        other.call(f"{functions}:echo", value=1, timeout_s=30)


def test_an_interpreter_of_another_version_is_named(tmp_path: Path) -> None:
    header = 'struct.pack("!4sHIIQ", b"rlct", 7, 2, 0, 0)'
    fake = fake_interpreter(tmp_path, f"os.write(connection, {header} + b'{{}}')")
    with pytest.raises(EnvironmentFailure, match=f"{fake} did not start(?s:.*)version 1, found version 7"):
        Interpreter(fake)


def test_a_program_that_is_no_interpreter_is_named(tmp_path: Path) -> None:
    fake = fake_interpreter(tmp_path, "sys.exit('I am a teapot')")
    with pytest.raises(EnvironmentFailure, match=r"did not start(?s:.*)exit status 1(?s:.*)I am a teapot"):
        Interpreter(fake)
    with pytest.raises(UserError, match="no interpreter"):
        Interpreter(tmp_path / "absent")
    with pytest.raises(UserError, match="needs the program"):
        Interpreter(tmp_path)


def test_secrets_of_this_process_are_not_passed_on(
    functions: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LC_TIME", "C")
    assert {"HF_TOKEN", "PYTHONPATH"}.isdisjoint(variables_for_child({}))
    with Interpreter(sys.executable, variables={"SCENE": "table"}) as other:
        found = [other.call(f"{functions}:variable", name=n, timeout_s=30) for n in ("HF_TOKEN", "LC_TIME", "SCENE")]
    assert found == [None, "C", "table"]


@pytest.mark.slow
def test_processes_end_with_a_killed_parent(functions: Path) -> None:
    code = f"""
        import os, sys, time
        from rlcore.transport import Interpreter
        other = Interpreter(sys.executable)
        print(other.call("os:getpid", timeout_s=30), flush=True)
        other.call({str(functions)!r} + ":raw", data=b"", timeout_s=60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        parent.kill()
    end = time.monotonic() + 10
    while os.path.exists(f"/proc/{process}") and time.monotonic() < end:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{process}")


def test_nothing_is_left_in_shared_memory_or_open(functions: Path) -> None:
    before = sorted(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with Interpreter(sys.executable) as other:
            assert len(other.call(f"{functions}:echo", value=b"x" * 300_000, timeout_s=30)) == 300_000
    assert (sorted(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))) == before


def test_a_fork_of_this_process_does_not_end_the_child(other: Interpreter, functions: Path) -> None:
    fork = os.fork()
    if not fork:
        try:
            other.call(f"{functions}:echo", value=1, timeout_s=5)
        except EnvironmentFailure:
            other.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(fork, 0)[1] == 0
    assert other.call(f"{functions}:echo", value=2, timeout_s=30) == 2


def test_only_data_is_sent() -> None:
    for value in (object(), {"a": lambda: None}, [1j], range(3)):
        with pytest.raises(NotSendable):
            encode(value, Parts())


@pytest.mark.parametrize(
    "text", [b"[" + b"[]," * 5_000_000 + b"0]", b"[" * 1_000_000, b"[" + b"0," * 8_000_000 + b"0]"]
)
def test_texts_of_too_many_values_are_rejected_before_they_are_parsed(text: bytes) -> None:
    start = time.process_time()
    with pytest.raises(messages.BrokenMessage, match="limit is 500000"):
        messages.unpack_text(memoryview(text))
    assert time.process_time() - start < 1


def test_values_that_are_too_many_are_not_sent() -> None:
    with pytest.raises(ValueError, match="limit is 500000"):
        messages.pack([[]] * 500_000)
    assert messages.pack(["[],"] * 100_000)


def test_damaged_values_are_rejected() -> None:
    damaged = [
        {"$": "bytes", "at": 4, "size": 8},
        {"$": "bytes", "at": -1, "size": 1},
        {"$": "bytes", "at": 0, "size": 2**80},
        {"$": "pickle", "data": ""},
        {"$": []},
        {"$": "tuple"},
        {"$": "dict", "items": [[[], 1]]},
        {"$": "array", "dtype": "|O8", "shape": [1], "at": 0},
        {"$": "array", "dtype": "<f8", "shape": [2**40, 2**40], "at": 0},
        {"$": "array", "dtype": "<f8", "shape": [True], "at": 0},
        {"$": "array", "dtype": "<f8", "shape": [-1], "at": 0},
    ]
    for value in damaged:
        with pytest.raises(messages.BrokenMessage):
            decode(json.loads(json.dumps([value])), bytearray(8))
