"""What ends a session, and what follows: limits, crashes, cancelled calls and damaged messages."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from image_files import picture
from rlcore.errors import SandboxFailure
from rlcore.types import CodeResult, SandboxLimits
from rlcore_sandbox import support
from rlcore_sandbox.local import LocalSandbox, LocalSession
from rlcore_sandbox.starting import ZygoteProcess

LIMITS = SandboxLimits(cell_s=2.0, output_characters=400, images=3, image_pixels=40_000, memory_mb=256)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    found = LocalSandbox("namespaces", LIMITS)
    yield found
    asyncio.run(found.close())


async def results_in(session: LocalSession, *cells: str) -> list[CodeResult]:
    try:
        return [await session.run(cell) for cell in cells]
    finally:
        await session.close()


def results(sandbox: LocalSandbox, *cells: str) -> list[CodeResult]:
    async def whole() -> list[CodeResult]:
        return await results_in(await sandbox.open([picture(20, 10)]), *cells)

    return asyncio.run(whole())


HANGING = {
    "a loop": "while True: pass",
    "a loop that catches everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "a sleep that ignores signals": (
        "import signal, time\n"
        "for number in range(1, 32):\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except OSError: pass\n"
        "while True: time.sleep(100)"
    ),
    "a loop in compiled code": "sum(range(10**12))",
    "a stopped process": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nwhile True: pass",
    "a wait for a child": "import os\nif os.fork() == 0:\n    while True: pass\nos.wait()",
    "an exit that is caught": "import atexit, sys\nwhile True:\n    try: sys.exit()\n    except SystemExit: pass",
}


@pytest.mark.slow
def test_hanging_cells_are_killed_and_the_session_restarts(sandbox: LocalSandbox) -> None:
    cells = ("x = 1\nprint('kept', flush=True)", "print('before')\n{}", "'x' in globals(), image_clue_0.size", "x = 2")

    async def one(code: str) -> list[CodeResult]:
        session = await sandbox.open([picture(20, 10)])
        return await results_in(session, *(cell.format(code) for cell in cells))

    async def whole() -> list[list[CodeResult]]:
        return await asyncio.gather(*map(one, HANGING.values()))

    start = time.monotonic()
    for name, (first, hung, after, last) in zip(HANGING, asyncio.run(whole()), strict=True):
        assert first.ok, name
        assert (hung.status, hung.reset) == ("timeout", True), name
        assert hung.stdout == "before\n", name
        assert "2 s" in hung.error
        assert (after.value, after.reset) == ("(False, (20, 10))", False), name
        assert after.stdout == "", name
        assert last.ok
    assert time.monotonic() - start < len(HANGING) * LIMITS.cell_s


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os._exit(3)", "status 3"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", "64 MiB"),
        ("import os; os.closerange(0, 99)", "connection"),
        ("import os; os.write(3, b'garbage' * 100)", "connection"),
        ("import os; os.write(3, b'J\\x00\\x00\\x00\\x02[]')", "connection"),
        ("import os; os.write(3, b'J\\x00\\x00\\x00\\x01{')", "connection"),
        ("import os; os.write(3, b'J\\x7f\\xff\\xff\\xff')", "connection"),
        ("import os; os.write(3, b'I\\x00\\x00\\x00\\x01x' * 9)", "connection"),
        ("import os; os.write(3, b'J\\x00\\x00\\x00\\x08{\"id\":5}')", "connection"),
    ],
)
def test_a_process_that_ends_itself_is_killed_and_restarted(sandbox: LocalSandbox, code: str, reason: str) -> None:
    killed, after = results(sandbox, f"x = 1\nprint('out')\n{code}", "'x' in globals()")
    assert (killed.status, killed.reset) == ("killed", True)
    assert reason in killed.error
    assert killed.stdout.startswith("out\n")
    assert after.value == "False"
    assert not after.reset


FORGED = """
import json, os, struct
def frame(kind, data):
    os.write(3, kind + struct.pack('!I', len(data)) + data)
def reply(**fields):
    text = {"id": 1, "ok": True, "value": "", "error": "", "omitted": 0, **fields}
    frame(b'J', json.dumps(text).encode())
    while True: pass
"""


CHUNKS = """
import io, zlib
f = io.BytesIO(); Image.new('RGB', (9, 9)).save(f, 'PNG'); data = f.getvalue()
empty = bytes(4) + b'prVt' + struct.pack('!I', zlib.crc32(b'prVt'))
frame(b'I', data[:33] + empty * 20000 + data[33:]); reply()
"""


@pytest.mark.parametrize(
    "code",
    [
        "frame(b'I', b'no image'); reply()",
        "import io; f = io.BytesIO(); Image.new('RGB', (300, 300)).save(f, 'PNG'); frame(b'I', f.getvalue()); reply()",
        "import io; f = io.BytesIO(); Image.new('RGB', (9, 9)).save(f, 'JPEG'); frame(b'I', f.getvalue()); reply()",
        "import io; f = io.BytesIO(); Image.new('RGB', (9, 9)).save(f, 'PNG'); frame(b'I', f.getvalue()[:45]); reply()",
        CHUNKS,
        "reply(value=3)",
        "reply(value=None)",
        "reply(ok='yes')",
        "reply(omitted=-1)",
        "reply(omitted=True)",
        "reply(error='but ok')",
    ],
)
def test_forged_replies_are_not_believed(sandbox: LocalSandbox, code: str) -> None:
    forged, after = results(sandbox, FORGED + code, "1")
    assert (forged.status, forged.reset, forged.images) == ("killed", True, ())
    assert (after.status, after.value) == ("ok", "1")


def test_a_forged_text_is_cut_to_the_limit(sandbox: LocalSandbox) -> None:
    (forged,) = results(sandbox, FORGED + "reply(value='\\ud800' + 'x' * 5000)")
    assert len(forged.value) <= LIMITS.output_characters
    forged.value.encode("utf-8")


def test_code_that_goes_on_after_a_forged_reply_is_killed(sandbox: LocalSandbox) -> None:
    code = FORGED.replace("while True: pass", "import time; time.sleep(0.2); print('late')") + "reply()"
    forged, killed, after = results(sandbox, code, "print('mine')", "print('mine')")
    assert forged.ok
    assert killed.status == "killed"
    assert (after.status, after.stdout) == ("ok", "mine\n")


def test_thousands_of_replies_are_one_reason_to_kill(sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message to the zygote takes the event loop's time, and so the time of all other trajectories."""
    code = "import os\nframes = (b'J' + bytes(3) + bytes([2]) + b'{}') * 9000\nwhile True: os.write(3, frames)"
    killed: list[str] = []
    kill = ZygoteProcess.kill

    def counted(zygote: ZygoteProcess, name: str) -> None:
        killed.append(name)
        kill(zygote, name)

    monkeypatch.setattr(ZygoteProcess, "kill", counted)
    flooded, after = results(sandbox, code, "1")
    assert flooded.status == "killed"
    assert after.value == "1"
    assert len(set(killed)) == len(killed) == 2, "the flooding session and the one that replaced it"


@pytest.mark.slow
def test_cpu_time_of_a_cell_is_limited() -> None:
    limits = SandboxLimits(cell_s=100.0, cpu_s=1.0)

    async def whole() -> list[CodeResult]:
        sandbox = LocalSandbox("namespaces", limits)
        try:
            sleep = "import time; time.sleep(0.1)"
            return await results_in(await sandbox.open(), sleep, "while True: pass", "5")
        finally:
            await sandbox.close()

    slept, looped, after = asyncio.run(whole())
    assert slept.ok
    assert (looped.status, looped.reset) == ("timeout", True)
    assert "CPU" in looped.error
    assert after.value == "5"


def test_cells_have_a_lower_priority_than_the_zygote(sandbox: LocalSandbox) -> None:
    (found,) = results(sandbox, "import os\nos.getpriority(os.PRIO_PROCESS, 0)")
    assert int(found.value) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)


def test_memory_is_limited(sandbox: LocalSandbox) -> None:
    bomb, after = results(sandbox, "x = 7\nbytearray(2**30)", "x")
    assert bomb.status == "error"
    assert "MemoryError" in bomb.error
    assert after.value == "7"


FULL = """x = []
for size in (1 << 24, 1 << 20, 1 << 16, 1 << 12):
    try:
        while True: x.append(bytearray(size))
    except MemoryError: pass
"""


def test_a_session_whose_memory_is_full_runs_the_next_cell(sandbox: LocalSandbox) -> None:
    full, after, freed = results(sandbox, FULL, "print('next')", "del x; bytearray(2**26)[:3]")
    assert full.ok
    assert (after.status, after.stdout) == ("ok", "next\n")
    assert freed.value == "bytearray(b'\\x00\\x00\\x00')"


def test_a_session_whose_last_memory_is_used_is_restarted(sandbox: LocalSandbox) -> None:
    cells = [FULL, FULL.replace("x = []", "y = []"), "print('next')", "print('again')"]
    *_, after, again = results(sandbox, *cells)
    assert after.status in {"ok", "error", "killed"}, after
    assert again.stdout == "again\n", again


def test_processes_of_a_cell_end_with_it(sandbox: LocalSandbox) -> None:
    code = "import os, time\nif os.fork() == 0:\n    while True:\n        os.write(1, b'late'); time.sleep(0.001)\n"
    started, after = results(sandbox, f"{code}time.sleep(0.05)", "time.sleep(0.1)")
    assert started.ok
    assert "late" in started.stdout
    assert (after.status, after.stdout) == ("ok", "")


def test_a_process_that_ends_between_cells_resets_the_next_one(sandbox: LocalSandbox) -> None:
    async def whole() -> list[CodeResult]:
        await (await sandbox.open()).close()
        before = descendants(os.getpid())
        session = await sandbox.open()
        first = await session.run("x = 1")
        (process,) = descendants(os.getpid()) - before
        os.kill(process, signal.SIGKILL)
        while running(process):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        return [first, *await results_in(session, "'x' in globals()", "1")]

    first, after, last = asyncio.run(whole())
    assert first.ok
    assert (after.value, after.reset) in (("False", True), ("", True))  # or it ended while the call began
    assert not last.reset


def test_a_cancelled_call_kills_the_code(sandbox: LocalSandbox) -> None:
    async def whole() -> list[CodeResult]:
        session = await sandbox.open()
        call = asyncio.ensure_future(session.run("import time\nprint('old')\ntime.sleep(1)\nprint('old')\n'old'"))
        await asyncio.sleep(0.2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return await results_in(session, "print('new')\n1", "2")

    after, last = asyncio.run(whole())
    assert (after.stdout, after.value, after.reset) == ("new\n", "1", True)
    assert (last.value, last.reset) == ("2", False)


def test_images_are_numbered_on_after_a_restart(sandbox: LocalSandbox) -> None:
    shown, _, again = results(sandbox, "image_clue_0", "import os; os._exit(0)", "image_clue_0\n")
    assert shown.image_names == ("image_clue_1",)
    assert again.image_names == ("image_clue_2",)


async def run_often(session: LocalSession) -> None:
    for _ in range(100):  # it may answer until the kernel has ended it
        await session.run("1")


def children(process: int) -> set[int]:
    found = set()
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):  # the thread has ended
            found |= {int(child) for child in (task / "children").read_text(encoding="ascii").split()}
    return found


def descendants(process: int) -> set[int]:
    direct = children(process)
    return direct.union(*map(descendants, direct))


def running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def ends(processes: set[int]) -> bool:
    deadline = time.monotonic() + 10
    while any(map(running, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(running, processes))


@pytest.mark.parametrize("backend", ["namespaces", "landlock"])
def test_a_killed_zygote_is_a_failure_and_is_replaced(backend: str) -> None:
    async def whole() -> tuple[set[int], list[CodeResult]]:
        sandbox = LocalSandbox(backend, LIMITS)
        before = children(os.getpid())
        try:
            session, busy = await sandbox.open(), await sandbox.open()
            assert (await session.run("1")).ok
            call = asyncio.ensure_future(busy.run("while True: pass"))
            await asyncio.sleep(0.1)
            (zygote,) = children(os.getpid()) - before
            started = {zygote, *descendants(zygote)}
            os.kill(zygote, signal.SIGKILL)
            with pytest.raises(SandboxFailure):
                await call
            with pytest.raises(SandboxFailure):
                await run_often(session)
            await session.close()
            await busy.close()
            return started, await results_in(await sandbox.open(), "2")
        finally:
            await sandbox.close()

    started, (after,) = asyncio.run(whole())
    assert len(started) >= 3
    assert ends(started)
    assert after.value == "2"


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("backend", ["namespaces", "landlock"])
def test_a_session_that_opens_just_after_the_zygote_was_killed_has_another_one(backend: str, queued: bool) -> None:
    async def whole() -> CodeResult:
        sandbox = LocalSandbox(backend, LIMITS)
        before = children(os.getpid())
        try:
            await (await sandbox.open()).close()
            (zygote,) = children(os.getpid()) - before
            os.kill(zygote, signal.SIGSTOP if queued else signal.SIGKILL)
            opening = asyncio.ensure_future(sandbox.open())
            await asyncio.sleep(0.05 if queued else 0)
            with suppress(ProcessLookupError):  # it may have ended already
                os.kill(zygote, signal.SIGKILL)  # before it reads the request
            (found,) = await results_in(await opening, "1")
            return found
        finally:
            await sandbox.close()

    assert asyncio.run(whole()).value == "1"


HOST = """
import asyncio, os, signal, sys
from rlcore.types import SandboxLimits
from rlcore_sandbox.local import LocalSandbox
async def whole():
    session = await LocalSandbox(sys.argv[1], SandboxLimits()).open()
    await session.run("print(1, file=open('file', 'w'))")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(whole())
"""


@pytest.mark.parametrize("backend", ["namespaces", "bubblewrap", "landlock"])
def test_a_killed_host_leaves_nothing_in_the_temporary_folder(backend: str) -> None:
    if reason := getattr(support, backend)().reason:
        pytest.skip(f"{backend}: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # sessions of another user pass through it
        done = subprocess.run(
            [sys.executable, "-c", HOST, backend], env={**os.environ, "TMPDIR": folder}, check=False, timeout=60
        )
        assert done.returncode == -signal.SIGKILL
        deadline = time.monotonic() + 20
        while (left := os.listdir(folder)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left == []


def test_closing_the_sandbox_ends_everything() -> None:
    async def whole() -> set[int]:
        sandbox = LocalSandbox("namespaces", LIMITS)
        before = children(os.getpid())
        session = await sandbox.open()
        await session.run("import os\nfor i in range(3):\n    os.fork() or os.setsid()")
        (zygote,) = children(os.getpid()) - before
        started = {zygote, *descendants(zygote)}
        await sandbox.close()
        await sandbox.close()
        with pytest.raises(SandboxFailure):
            await session.run("1")
        await session.close()
        with pytest.raises(SandboxFailure):
            await sandbox.open()
        return started

    assert ends(asyncio.run(whole()))


@pytest.mark.slow
def test_a_busy_event_loop_does_not_make_cells_late() -> None:
    limits = SandboxLimits(cell_s=1.0)

    async def whole() -> list[CodeResult]:
        sandbox = LocalSandbox("namespaces", limits)
        try:
            session = await sandbox.open()
            call = asyncio.ensure_future(session.run("print('done')\n5"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            time.sleep(1.5)  # the reply arrives meanwhile
            return [await call, *await results_in(session, "6")]
        finally:
            await sandbox.close()

    first, second = asyncio.run(whole())
    assert (first.status, first.stdout, first.value) == ("ok", "done\n", "5")
    assert second.value == "6"


def test_missing_descriptors_are_a_failure_of_the_sandbox(sandbox: LocalSandbox) -> None:
    async def whole() -> None:
        await (await sandbox.open()).close()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        os.close(lowest := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 3, limits[1]))
        try:
            with pytest.raises(SandboxFailure, match="ulimit"):
                await sandbox.open()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert (await results_in(await sandbox.open(), "1"))[0].ok

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(whole())
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_zygote_that_cannot_be_started_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sandbox = LocalSandbox("namespaces", LIMITS)

    async def whole() -> None:
        with pytest.raises(SandboxFailure, match="missing"):
            await sandbox.open()
        await sandbox.close()

    asyncio.run(whole())
    assert list(tmp_path.iterdir()) == []
