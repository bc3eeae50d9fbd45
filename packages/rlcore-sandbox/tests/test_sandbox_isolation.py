"""The parts of the confinement: system calls, rules for files, limits, and what a backend says about itself."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
import re
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from rlcore.types import SandboxLimits
from rlcore_sandbox import support
from rlcore_sandbox.isolation import (
    interpreter,
    kernel,
    landlock,
    limits,
    restricted,
    seccomp,
    syscalls,
)
from rlcore_sandbox.local import LocalSandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the local sandboxes require Linux")
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
ALLOW, KILL = 0x7FFF0000, 0x80000000
OWN = 4321
CALLS = {
    name: number
    for table in (
        "FILES",
        "MEMORY",
        "PROCESS",
        "CONDITIONAL",
        "NEW_PROCESSES",
        "ATTRIBUTES",
        "REFUSED",
        "STREAMS",
        "DESCRIPTORS",
    )
    for name, number in getattr(syscalls, table).items()
}
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def decision(program: bytes, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel does with a call: runs the filter as an interpreter of BPF."""
    found = seccomp.ARCHITECTURES[kernel.MACHINE] if architecture is None else architecture
    padded = [value % 2**64 for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("=IIQ6Q", number, found, 0, *padded)
    lines = [struct.unpack_from("HBBI", program, place) for place in range(0, len(program), 8)]
    place = accumulator = 0
    while True:
        code, if_true, if_false, value = lines[place]
        place += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                place += if_true if accumulator == value else if_false
            case 0x35:
                place += if_true if accumulator >= value else if_false
            case 0x06:
                return value
            case _:
                raise AssertionError(code)


def refused(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize("processes", [True, False])
def test_ordinary_calls_are_allowed_and_dangerous_ones_refused(processes: bool) -> None:
    program = seccomp.program(processes=processes, process_id=OWN)
    assert len(program) // 8 <= 4096, "the kernel accepts at most 4096 instructions"
    for name in ("read", "write", "openat", "mmap", "futex", "exit_group"):
        assert decision(program, CALLS[name]) == ALLOW, name
    for name in syscalls.REFUSED:
        assert decision(program, CALLS[name]) == refused(errno.EPERM), name
    assert decision(program, 9999) == refused(errno.ENOSYS)


def test_calls_of_another_architecture_end_the_process() -> None:
    program = seccomp.program(processes=True, process_id=1)
    assert decision(program, CALLS["read"], architecture=0x40000003) == KILL
    if kernel.MACHINE == "x86_64":
        assert decision(program, CALLS["read"] | 0x40000000) == KILL


def test_a_session_in_a_namespace_may_fork_but_not_into_namespaces() -> None:
    program = seccomp.program(processes=True, process_id=1)
    assert decision(program, CALLS["clone"], 17) == ALLOW
    for flag in (kernel.CLONE_NEWUSER, kernel.CLONE_NEWNS, kernel.CLONE_NEWNET, kernel.CLONE_NEWPID):
        assert decision(program, CALLS["clone"], 17 | flag) == refused(errno.EPERM)
    assert decision(program, CALLS["kill"], -1, 9) == ALLOW


def test_a_session_without_namespaces_reaches_only_itself() -> None:
    program = seccomp.program(processes=False, process_id=OWN)
    assert decision(program, CALLS["clone"], 17) == refused(errno.EPERM)
    for name in ("kill", "tgkill", "tkill", "prlimit64", "rt_sigqueueinfo"):
        assert decision(program, CALLS[name], OWN) == ALLOW, name
        for other in (1, OWN + 1, -1, -OWN):
            assert decision(program, CALLS[name], other) == refused(errno.EPERM), (name, other)
    for name in ("fchmodat", "fchownat", "utimensat", "setxattr", "setsid", "sendmsg"):
        assert decision(program, CALLS[name]) == refused(errno.EPERM), name


def test_only_connected_pairs_of_sockets_are_allowed() -> None:
    program = seccomp.program(processes=True, process_id=1)
    assert decision(program, CALLS["socketpair"], 1, 1 | 0o2000000) == ALLOW
    assert decision(program, CALLS["socketpair"], 1, 2) == refused(errno.EPERM), "datagrams can be sent to any address"
    assert decision(program, CALLS["socketpair"], 2, 1) == refused(errno.EPERM)
    assert decision(program, CALLS["setsockopt"], 0, 1, 20) == ALLOW
    assert decision(program, CALLS["setsockopt"], 0, 1, 26) == refused(errno.EPERM), "SO_ATTACH_FILTER"
    assert decision(program, CALLS["setsockopt"], 0, 1, 7) == refused(errno.EPERM), "SO_SNDBUF"
    assert decision(program, CALLS["ioctl"], 1, 0x5412) == refused(errno.EPERM), "TIOCSTI types into a terminal"
    assert decision(program, CALLS["fcntl"], 1, 8) == refused(errno.EPERM), "F_SETOWN sends signals"
    assert decision(program, CALLS["prctl"], kernel.PR_SET_PDEATHSIG) == refused(errno.EPERM)


@pytest.mark.parametrize("processes", [True, False])
def test_shared_memory_without_a_file_is_refused(processes: bool) -> None:
    program = seccomp.program(processes=processes, process_id=OWN)
    private, shared, validated, anonymous = 2, 1, 3, 0x20
    for flags in (private | anonymous, private, shared, validated):
        assert decision(program, CALLS["mmap"], 0, 4096, 3, flags) == ALLOW
    for flags in (shared | anonymous, validated | anonymous):
        assert decision(program, CALLS["mmap"], 0, 4096, 3, flags) == refused(errno.EPERM)


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_of_system_calls_equal_those_of_the_kernel(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"no {HEADERS[machine]}")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text(encoding="utf-8"))
    numbers = {name: int(number) for name, number in found}
    if machine == "aarch64":
        numbers["newfstatat"] = numbers["fstatat"]
    source = Path(syscalls.__file__).read_text(encoding="utf-8")
    entries = re.findall(r"\b([a-z]\w+) (\d+|-) (\d+|-)[,\n]", source)
    assert len(entries) > 200
    column = kernel.SUPPORTED_MACHINES.index(machine)
    for name, *both in entries:
        if name in numbers and both[column] != "-":
            assert int(both[column]) == numbers[name], name


def test_rules_of_landlock_hold_in_a_process_of_its_own(tmp_path: Path) -> None:
    if not landlock.version():
        pytest.skip("the kernel lacks landlock")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "scratch").mkdir()
    code = f"""
import os
from rlcore_sandbox.isolation import kernel, landlock
ruleset = landlock.create_ruleset(["/usr/lib"])
landlock.allow_scratch(ruleset, {str(tmp_path / "scratch")!r})
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
landlock.restrict(ruleset)
open({str(tmp_path / "scratch" / "own")!r}, "w").write("own")
for path, mode in (({str(tmp_path / "secret")!r}, "r"), ({str(tmp_path / "new")!r}, "w")):
    try:
        open(path, mode)
        print("reached")
    except PermissionError:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\nrefused\n"
    assert (tmp_path / "scratch" / "own").read_text() == "own"


def test_packages_of_rlcore_are_not_among_the_readable_files() -> None:
    trees, folders = interpreter.readable()
    names = {os.path.basename(path) for path in trees}
    assert "PIL" in names
    assert not [name for name in names if name.startswith(("rlcore", "rl_plugin_"))]
    assert not set(folders) & set(trees), "a folder with hidden packages is listed, but not readable as a whole"
    assert all(os.path.exists(path) for path in trees)


THIRD_PARTY = """
import os, site, sys
folder, backend, scratch = sys.argv[1:]
installed = site.getsitepackages()
site.getsitepackages = lambda prefixes=None: [*installed, folder]
sys.path.append(folder)
from types import SimpleNamespace
from rlcore_sandbox import isolation
limits = SimpleNamespace(memory_mb=512, processes=4, files=64, file_mb=1)
prepared = isolation.prepare(backend, limits, scratch)
own = os.path.join(scratch, "own")
os.mkdir(own)
child = prepared.fork()
if not child:
    prepared.enter(own)
    for name in ("acme_library.py", "acme_tasks/answers.txt", "acme_single.py", "acme-1.0.dist-info/RECORD"):
        try:
            print(name, open(os.path.join(folder, name)).read(4))
        except OSError as error:
            print(name, type(error).__name__)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("backend", ["namespaces", "landlock"])
def test_packages_of_third_party_plugins_are_hidden(backend: str, tmp_path: Path) -> None:
    found = getattr(support, backend)()
    if not found.available or not landlock.version():
        pytest.skip(found.reason or "the kernel lacks landlock")
    installed, scratch = tmp_path / "lib" / "site-packages", tmp_path / "box" / "sessions"
    record = "acme_tasks/__init__.py,,\nacme_tasks/answers.txt,,\nacme_single.py,,\nacme-1.0.dist-info/RECORD,,\n"
    for name, text in {
        "acme_library.py": "free",
        "acme_tasks/__init__.py": "",
        "acme_tasks/answers.txt": "secret",
        "acme_single.py": "secret",
        "acme-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n",
        "acme-1.0.dist-info/entry_points.txt": "[rlcore.plugins]\nacme = acme_tasks.plugin\n",
        "acme-1.0.dist-info/RECORD": record,
    }.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    scratch.mkdir(parents=True)
    for path in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        path.chmod(0o755)  # sessions are another user
    command = [sys.executable, "-c", THIRD_PARTY, str(installed), backend, str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "acme_library.py free",
        "acme_tasks/answers.txt PermissionError",
        "acme_single.py PermissionError",
        "acme-1.0.dist-info/RECORD PermissionError",
    ], done


def test_the_size_of_a_hostile_folder_is_found_or_infinite(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to("/")
    assert 100_000 <= limits.tree_bytes(str(tmp_path)) < 300_000
    deep = tmp_path
    for _ in range(60):
        deep = deep / "d"
        deep.mkdir()
    assert limits.tree_bytes(str(tmp_path)) == float("inf")


def test_deleted_files_that_are_open_count(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x" * 2_000_000)
        file.flush()
        most = SimpleNamespace(file_mb=1)
        assert limits.files_status([os.getpid()], most, str(tmp_path)) == limits.FILES_STATUS
        (tmp_path / "file").unlink()
        assert limits.files_status([os.getpid()], most, str(tmp_path)) == limits.FILES_STATUS
    assert limits.files_status([os.getpid()], most, str(tmp_path)) == 0


def test_deleted_files_that_are_only_mapped_count(tmp_path: Path) -> None:
    most = SimpleNamespace(file_mb=1)
    maps = []
    for _ in range(2):
        with (tmp_path / "file").open("w+b") as file:
            file.truncate(mmap.PAGESIZE)
            library = ctypes.CDLL(None)
            library.mmap.restype = ctypes.c_void_p
            maps.append(library.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), 1, 1, file.fileno(), ctypes.c_long(0)))
        (tmp_path / "file").unlink()
    try:
        assert limits.files_status([os.getpid()], most, str(tmp_path)) == limits.FILES_STATUS
    finally:
        for place in maps:
            library.munmap(ctypes.c_void_p(place), ctypes.c_size_t(mmap.PAGESIZE))
    assert limits.files_status([os.getpid()], most, str(tmp_path)) == 0


def test_progress_changes_when_a_process_runs_and_not_when_it_waits() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            while Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").split()[2] != "S":
                time.sleep(0.01)
            first = limits.progress(process.pid)
            assert first
            assert limits.progress(process.pid) == first
        finally:
            process.kill()
    before = limits.progress(os.getpid())
    time.sleep(0.01)
    assert limits.progress(os.getpid()) != before


@pytest.mark.parametrize("backend", ["namespaces", "landlock", "bubblewrap"])
def test_a_backend_states_its_guarantees_or_why_it_cannot_be_used(backend: str) -> None:
    found = getattr(support, backend)()
    if found.available:
        assert "no network and no sockets" in found.guarantees
        assert found.lacks
    else:
        assert found.reason
        assert found.fix


def test_namespaces_are_used_without_landlock_and_in_restricted_containers(tmp_path: Path) -> None:
    if not support.namespaces().available:
        pytest.skip(support.namespaces().reason)
    code = f"""
from rlcore_sandbox.isolation import kernel, landlock, probe
landlock.version = lambda: 0
mount = kernel.mount
def restricted(source, target, kind, *rest):
    if kind == "proc":
        raise OSError(1, "the kernel refuses to mount proc")
    mount(source, target, kind, *rest)
kernel.mount = restricted
print(probe.facts("namespaces", {str(tmp_path)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{'landlock': 0, 'root': False}\n"


def descendants(process: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            for child in map(int, (task / "children").read_text(encoding="ascii").split()):
                found += [child, *descendants(child)]
    return found


def test_each_session_has_namespaces_of_its_own_and_no_capabilities() -> None:
    if not support.namespaces().available:
        pytest.skip(support.namespaces().reason)

    async def processes() -> list[tuple[dict[str, str], str]]:
        sandbox = LocalSandbox("namespaces", SandboxLimits())
        before = set(descendants(os.getpid()))
        try:
            for _ in range(2):
                await sandbox.open(())
            started = [each for each in descendants(os.getpid()) if each not in before]
            return [
                (
                    {name: os.readlink(f"/proc/{each}/ns/{name}") for name in NAMESPACES},
                    Path(f"/proc/{each}/status").read_text(encoding="utf-8"),
                )
                for each in started
            ]
        finally:
            await sandbox.close()

    zygote, first, second = asyncio.run(processes())
    for name in NAMESPACES:
        assert len({os.readlink(f"/proc/self/ns/{name}"), first[0][name], second[0][name]}) == 3, name
    for _, status in (first, second):
        lines = dict(re.findall(r"(\w+):\s+(.*)", status))
        assert {int(lines[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")
        assert lines["Uid"].split()[0] != "0"
    assert "Seccomp:\t0" in zygote[1]


def test_bubblewrap_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = support.bubblewrap()
    assert not found.available
    assert restricted.BUBBLEWRAP in found.reason
    assert "apt-get install bubblewrap" in found.fix
