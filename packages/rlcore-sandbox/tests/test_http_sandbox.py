"""The sandbox ``http``, with a real server that runs programs. Each cell starts an interpreter."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install 'rlcore-sandbox[http]'")
from fusion_server import HUNG, SANDBOX_ERROR, FusionServer
from PIL import Image
from rlcore.errors import ConfigError, SandboxFailure, UserError
from rlcore.plugins.registry import Registry
from rlcore.session.plan import RunPlan
from rlcore.testing import check_sandbox
from rlcore.types import CodeResult, SandboxLimits
from rlcore_sandbox import service
from rlcore_sandbox.config import HttpSandboxConfig
from rlcore_sandbox.fusion import HttpSandbox, HttpSession, available

LIMITS = SandboxLimits(cell_s=20.0, output_characters=1000)
READY = "rlcore driver started\nrlcore session ready\n"
KEY = "a-key-that-nobody-may-see"


@pytest.fixture
def server() -> Iterator[FusionServer]:
    with FusionServer() as server:
        yield server


def results(
    server: FusionServer, *cells: str, limits: SandboxLimits = LIMITS, images: tuple[bytes, ...] = (), **options: Any
) -> list[CodeResult]:
    """The results of the cells of one session."""

    async def work(session: HttpSession) -> list[CodeResult]:
        return [await session.run(cell) for cell in cells]

    return in_session(server, work, limits=limits, images=images, **options)


def in_session(
    server: FusionServer,
    work: Callable[[HttpSession], Awaitable[Any]],
    *,
    limits: SandboxLimits = LIMITS,
    images: tuple[bytes, ...] = (),
    **options: Any,
) -> Any:
    async def main() -> Any:
        sandbox = HttpSandbox(HttpSandboxConfig(base_url=server.url, **options), limits)
        try:
            return await work(await sandbox.open(images))
        finally:
            await sandbox.close()

    return asyncio.run(main())


def picture(width: int, height: int) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (width, height)).save(written, "PNG")
    return written.getvalue()


def test_a_cell_starts_with_the_initial_images_only(server: FusionServer) -> None:
    first, second, third = results(
        server,
        "print('once')\nx = 1\nimage_clue_0.crop((0, 0, 5, 4))",
        "print('before')\nraise ValueError('no')",
        "print(image_clue_0.size, [name for name in globals() if name in ('x', 'image_clue_1')])\nimage_clue_0",
        images=(picture(10, 10),),
    )
    assert (first.status, first.stdout, first.image_names, first.reset) == ("ok", "once\n", ("image_clue_1",), True)
    assert (second.status, second.stdout, second.images, second.reset) == ("error", "before\n", (), True)
    assert second.error.endswith("ValueError: no")
    assert (third.stdout, third.image_names) == ("(10, 10) []\n", ("image_clue_2",))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("while True: pass", "timeout", "too long"),
        ("import os\nos._exit(3)", "killed", "status 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "killed", "signal 11"),
    ],
)
def test_a_stopped_cell_says_why(server: FusionServer, code: str, status: str, said: str) -> None:
    limits = SandboxLimits(cell_s=2.0, cpu_s=60.0)
    stopped, after = results(server, f"print('begun', flush=True)\n{code}", "print('next')", limits=limits)
    assert (stopped.status, stopped.stdout, stopped.reset) == (status, "begun\n", True)
    assert said in stopped.error
    assert (after.status, after.stdout) == ("ok", "next\n")


@pytest.mark.slow
def test_cpu_time_of_a_cell_is_limited(server: FusionServer) -> None:
    (stopped,) = results(server, "while True: pass", limits=SandboxLimits(cpu_s=1.0))
    assert stopped.status == "timeout"
    assert "CPU" in stopped.error


@pytest.mark.parametrize(
    "code",
    [
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
        "import os, glob\nos.write(3, b'J' + bytes(3) + bytes([4]) + b'{}}}')",
        "import os\nos.write(3, b'J' + bytes([255] * 4))",
    ],
)
def test_code_that_attacks_the_driver_is_scored_as_failed(server: FusionServer, code: str) -> None:
    attack, after = results(server, code, "print('next')")
    assert attack.status == "killed"
    assert (after.status, after.stdout) == ("ok", "next\n")


@pytest.mark.parametrize("text", ['{"outcome": "failed", "error": "x"}', "[" * 100_000, '{"outcome": "reply"}'])
def test_a_process_that_is_left_behind_cannot_write_the_result(server: FusionServer, text: str) -> None:
    code = f"""
import os, time
folder = os.readlink(f"/proc/{{os.getppid()}}/cwd")
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    while True:
        with open(os.path.join(folder, "rlcore-result.json"), "w") as file:
            file.write({text!r})
        time.sleep(0.001)
time.sleep(0.3)
'real'
"""
    (result,) = results(server, code)
    assert result.value == "'real'"


@pytest.mark.parametrize("outcome", ["failed", "reply"])
def test_code_cannot_end_its_trajectory_unscored(server: FusionServer, outcome: str) -> None:
    """It writes a result that says that the service failed, and kills the process that would replace it."""
    code = f"""
import json, os, signal
driver = os.getppid()
with open(os.path.join(os.readlink(f"/proc/{{driver}}/cwd"), "rlcore-result.json"), "w") as file:
    json.dump({{"outcome": {outcome!r}, "error": "no machine"}}, file)
os.kill(driver, signal.SIGKILL)
"""
    (forged,) = results(server, code)
    assert (forged.status, forged.reset) == ("killed", True)


def test_a_failed_outcome_after_code_ran_counts_against_the_code(server: FusionServer) -> None:
    encoded = base64.b64encode(b'{"outcome": "failed", "error": "no machine"}').decode()
    ran = {"status": "Finished", "return_code": 0, "stdout": READY, "stderr": ""}
    answer = {"status": "Success", "run_result": ran, "files": {"rlcore-result.json": encoded}}
    early = {**answer, "run_result": {**ran, "stdout": "rlcore driver started\n"}}
    server.failures = [(200, json.dumps(answer).encode()), (200, json.dumps(early).encode())]
    (forged,) = results(server, "1")
    assert (forged.status, forged.reset) == ("killed", True)
    with pytest.raises(SandboxFailure, match="no machine"):
        results(server, "1")


def test_a_session_that_does_not_start_in_time_is_a_failure_of_the_service(server: FusionServer) -> None:
    ran = {"status": "TimeLimitExceeded", "return_code": None, "stdout": "rlcore driver started\n", "stderr": ""}
    server.failures = [(200, json.dumps({"status": "Failed", "run_result": ran}).encode())]
    with pytest.raises(SandboxFailure, match="did not start"):
        results(server, "1")


def test_an_answer_that_code_makes_too_long_counts_against_the_code(
    server: FusionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_BYTES", 1000)
    server.failures = [(200, b"x" * 2000)]
    (result,) = results(server, "1")
    assert (result.status, result.reset) == ("killed", True)


SMALL = SandboxLimits(cell_s=30.0, processes=6, memory_mb=128, file_mb=4, output_characters=500)


WAIT = "\ntime.sleep(60)"
FORK = f"import os, time\nfor _ in range(9): os.fork() or time.sleep(60){WAIT}"
# With stacks of 8 MiB, nine threads exceed the limit on memory first, depending on where the kernel maps them.
SMALL_STACKS = "import threading, time\nthreading.stack_size(65536)"
THREADS = f"{SMALL_STACKS}\nfor _ in range(9): threading.Thread(target=time.sleep, args=(60,)).start(){WAIT}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (FORK, "6 processes"),
        (FORK.replace("time.sleep(60)\n", "(os.setsid(), time.sleep(60))\n"), "6 processes"),
        (THREADS, "6 processes"),
        (f"import os, time\nos.fork(), os.fork()\nx = b'1' * (90 << 20){WAIT}", "128 MiB"),
        (f"import time\nfor n in range(9): open(str(n), 'wb').write(b'x' * (1 << 20)){WAIT}", "4 MiB of files"),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", "64 MiB"),
    ],
)
def test_what_processes_use_together_is_limited(code: str, said: str) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    with FusionServer(contained=True) as server:
        stopped, after = results(server, code, "1", limits=SMALL)
    assert stopped.status == "killed", stopped
    assert said in stopped.error
    assert after.value == "1"


@pytest.mark.slow
def test_processes_and_threads_of_earlier_cells_print_nothing_later(server: FusionServer) -> None:
    write = "import os, threading, time\ndef work():\n    while True: os.write(1, b'late'), time.sleep(0.001)\n"
    _, after = results(server, f"{write}os.fork() or work()", "import time\ntime.sleep(0.2)\nprint('mine')")
    assert after.stdout == "mine\n"
    threads, after = results(server, f"{write}threading.Thread(target=work, daemon=True).start()", "print('mine')")
    assert (threads.status, after.stdout) == ("ok", "mine\n")


WHOLE = {"outcome": "reply", "ok": True, "error": "", "omitted": 0, "images": [], "seconds": 0.5}
WHOLE |= dict.fromkeys(("value", "stdout", "stderr"), "")
DAMAGES = [{"ok": 1}, {"omitted": -1}, {"omitted": True}, {"seconds": 1e999}, {"seconds": 10**400}, {"stdout": 2}]


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{}", '{"outcome": "reply", "error": ""}', '{"error": 2}']
    + [json.dumps(WHOLE | damage) for damage in DAMAGES],
)
def test_a_damaged_result_counts_against_the_code(server: FusionServer, text: str) -> None:
    encoded = base64.b64encode(text.encode()).decode()
    ran = {"status": "Finished", "return_code": 0, "stdout": READY, "stderr": ""}
    answer = {"status": "Success", "run_result": ran, "files": {"rlcore-result.json": encoded}}
    server.failures = [(200, json.dumps(answer).encode())]
    (result,) = results(server, "1")
    assert (result.status, result.reset) == ("killed", True)


@pytest.mark.parametrize("failure", [(500, b"busy"), (429, b"{}"), SANDBOX_ERROR, HUNG, (0, b""), (200, b"<html>")])
def test_a_failure_of_the_service_is_retried_and_then_raised(server: FusionServer, failure: Any) -> None:
    server.failures = [failure]
    (fine,) = results(server, "1 + 1")
    assert fine.value == "2"
    server.failures = [failure] * 2
    with pytest.raises(SandboxFailure, match="service"):
        results(server, "1 + 1", max_retries=1)
    assert server.failures == []


def test_a_rejected_request_is_not_retried(server: FusionServer) -> None:
    server.failures = [(422, b"no such field")] * 2
    with pytest.raises(SandboxFailure, match="422: no such field"):
        results(server, "1")
    assert len(server.failures) == 1


def test_a_service_that_does_not_answer_is_given_up(server: FusionServer) -> None:
    server.failures = [lambda: (time.sleep(1.5), (200, b""))[1]]
    limits = SandboxLimits(cell_s=0.1)

    async def work(session: HttpSession) -> None:
        session._service._config = session._service._config.model_copy(update={"wait_s": -30.0})
        with pytest.raises(SandboxFailure, match="no answer"):
            await session.run("1")

    in_session(server, work, limits=limits)


def test_a_service_without_a_usable_python_is_a_failure(server: FusionServer) -> None:
    answer = {
        "status": "Failed",
        "message": "",
        "run_result": {"status": "Finished", "return_code": 1, "stdout": "", "stderr": "x\nImportError: old"},
    }
    server.failures = [(200, json.dumps(answer).encode())]
    with pytest.raises(SandboxFailure, match="ImportError: old"):
        results(server, "1")


def test_the_key_is_sent_and_never_shown(server: FusionServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_KEY", KEY)
    server.failures = [(401, f"wrong key {KEY}".encode())]
    with pytest.raises(SandboxFailure) as raised:
        results(server, "1", api_key_env="FUSION_KEY")
    assert server.keys == [f"Bearer {KEY}"]
    assert KEY not in str(raised.value)


def test_an_unavailable_service_is_refused_with_its_reason(server: FusionServer) -> None:
    found = available(HttpSandboxConfig(base_url=server.url))
    assert found.available
    assert server.url in found.guarantees[0]
    assert any("kills the process" in text for text in found.lacks)
    assert any("variables do not persist" in text for text in found.lacks)
    server.failures = [SANDBOX_ERROR]
    assert "no pod" in available(HttpSandboxConfig(base_url=server.url)).reason
    server.__exit__()
    gone = available(HttpSandboxConfig(base_url=server.url))
    assert server.url in gone.reason
    assert gone.fix
    assert "base_url" in available(None).fix


def test_options_are_validated_in_the_table_of_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "trainer")
    values: dict[str, Any] = {
        "model": {"path": "m"},
        "environment": {"id": f"{__file__}:HttpSession"},
        "data": {"id": f"{__file__}:HttpSession"},
        "reward": [],
    }
    for sandbox in ({}, {"base_url": "ftp://x"}, {"base_url": "http://x", "api_key": KEY}):
        with pytest.raises(ConfigError) as raised:
            RunPlan.of({**values, "sandbox": {"id": "http", **sandbox}}, registry=Registry(), purpose="evaluation")
        assert "sandbox." in str(raised.value)
        assert KEY not in str(raised.value)
    assert HttpSandboxConfig(base_url="http://x:1/run_code").base_url == "http://x:1"
    with pytest.raises(UserError, match="key"):
        HttpSandboxConfig(base_url="http://x", api_key_env="NO_SUCH_KEY").key()


@pytest.mark.slow
def test_the_service_keeps_the_contract_of_sandboxes(server: FusionServer) -> None:
    check_sandbox("http", options={"base_url": server.url})
