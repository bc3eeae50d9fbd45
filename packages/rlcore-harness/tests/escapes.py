"""An agent that tries what a confined one must not do, in its process and in programs that it starts."""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
from pathlib import Path

from agents import ask

FAST_OPEN = 0x20000000


def opened(path, flags):
    os.close(os.open(path, flags))


def connected(family, kind, address, protocol=0):
    with socket.socket(family, kind, protocol) as made:
        made.connect(address)


def sent_early(port):
    with socket.socket() as made:
        made.sendto(b"x", FAST_OPEN, ("127.0.0.1", port))


def called(number, *arguments):
    if ctypes.CDLL(None, use_errno=True).syscall(number, *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")


def listening():
    with socket.socket() as made:
        made.listen()


def traced(process):
    if ctypes.CDLL(None, use_errno=True).ptrace(16, process, None, None):
        raise OSError(ctypes.get_errno(), "ptrace")


def killed_by_the_kernel():
    """Write to a pipe for which the run has told the kernel to kill the group, which includes the supervisor."""
    for each in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if fcntl.fcntl(each, fcntl.F_GETSIG) == signal.SIGKILL:
                fcntl.fcntl(each, fcntl.F_SETFL, os.O_ASYNC)
                os.write(os.open(f"/proc/self/fd/{each}", os.O_WRONLY), b"x")
                return
    raise OSError("there is no such pipe")


def shell(*command):
    if subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        raise OSError("refused")


def python(expression, process):
    code = f"import ctypes, sys; process, call = {process}, ctypes.CDLL(None).syscall; sys.exit(({expression}) < 0)"
    shell(sys.executable, "-c", code)


def attempts(fields):
    secret, port, unix = fields["secret"], fields["port"], fields["unix"]
    beside, parent, agent = os.path.dirname(secret), os.getppid(), os.getpid()
    get_segment, get_keyring = {"x86_64": (29, 250)}.get(os.uname().machine, (194, 219))
    return {
        "read": lambda: opened(secret, os.O_RDONLY),
        "read by a link": lambda: (os.symlink(secret, "link"), opened("link", os.O_RDONLY)),
        "read by a hard link": lambda: os.link(secret, "hard"),
        "read through proc": lambda: opened(f"/proc/self/root{secret}", os.O_RDONLY),
        "read by a program": lambda: shell("cat", secret),
        "list": lambda: os.listdir(beside),
        "namespace": lambda: shell("unshare", "-U", "true"),
        "lease": lambda: fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK),
        "flags": lambda: fcntl.ioctl(os.open(os.__file__, os.O_RDONLY), 0x40086602, bytes(8)),
        "write": lambda: opened(secret, os.O_WRONLY),
        "create": lambda: opened(f"{beside}/new", os.O_WRONLY | os.O_CREAT),
        "create in /tmp": lambda: opened("/tmp/rlcore-escaped", os.O_WRONLY | os.O_CREAT),
        "truncate": lambda: os.truncate(secret, 0),
        "remove": lambda: os.remove(secret),
        "rename": lambda: os.rename(secret, f"{beside}/renamed"),
        "move here": lambda: os.rename(secret, "moved"),
        "shadow": lambda: opened("/etc/shadow", os.O_RDONLY),
        "environment of the parent": lambda: opened(f"/proc/{parent}/environ", os.O_RDONLY),
        "maps of the parent": lambda: opened(f"/proc/{parent}/maps", os.O_RDONLY),
        "variables of the parent by a program": lambda: shell("cat", f"/proc/{parent}/environ"),
        "memory of the parent": lambda: opened(f"/proc/{parent}/mem", os.O_RDONLY),
        "descriptor of the parent": lambda: opened(f"/proc/{parent}/fd/1", os.O_RDONLY),
        "trace": lambda: traced(parent),
        "signal": lambda: os.kill(parent, signal.SIGCONT),
        "signal by a program": lambda: shell("kill", "-CONT", str(parent)),
        "signal by the kernel": killed_by_the_kernel,
        "limits of the parent": lambda: resource.prlimit(parent, resource.RLIMIT_CPU),
        "shared memory": lambda: called(get_segment, 0, 4096, 0o600),
        "keys": lambda: called(get_keyring, 0, -4, 0),
        "variables of the agent by a program": lambda: shell("cat", f"/proc/{agent}/environ"),
        "memory of the agent by a program": lambda: shell("head", "-c0", f"/proc/{agent}/mem"),
        "trace of the agent by a program": lambda: python("ctypes.CDLL(None).ptrace(16, process, None, None)", agent),
        "descriptor of the agent by a program": lambda: python("call(438, call(434, process, 0), 0, 0)", agent),
        "connect": lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)),
        "connect by mptcp": lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port), 262),
        "connect early": lambda: sent_early(port),
        "connect by udp": lambda: connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)),
        "connect to a unix socket": lambda: connected(socket.AF_UNIX, socket.SOCK_STREAM, unix),
        "pair of datagrams": lambda: socket.socketpair(type=socket.SOCK_DGRAM),
        "bind": lambda: socket.create_server(("127.0.0.1", 0)),
        "listen": listening,
        "attribute": lambda: os.setxattr(secret, "user.x", b"1"),
        "mount": lambda: shell("mount", "-t", "tmpfs", "none", "/mnt"),
    }


def tries(task, policy):
    """Its reward is the number of attempts that were refused."""
    done = []
    chosen = task.fields.get("only")
    for name, attempt in attempts(task.fields).items():
        if chosen and name not in chosen:
            continue
        try:
            attempt()
            done.append(name)
        except OSError:
            continue
    try:
        policy.reward(1.0)
        done.append("reward")
    except urllib.error.HTTPError as error:
        if error.code != 400 or b"confined" not in error.read():
            raise
    os.chmod(task.fields["secret"], 0o777)  # succeeds, without an effect
    os.utime(task.fields["secret"], (1, 1))
    assert not done, done
    return len(attempts(task.fields))


def leaves_its_group(task, policy):
    seconds = str(600 + task.fields["number"])
    subprocess.Popen(["setsid", "sleep", seconds])
    subprocess.run(f"setsid sleep {seconds} > /dev/null 2>&1 &", shell=True, check=True)
    time.sleep(600)


def is_signalled(task, policy):
    """Its group is signalled while it waits for an answer."""
    assert ask(str(os.getppid())) == "yes"
    return 1.0


def works(task, policy):
    """Does what agents need. Its reward is 1."""
    assert ask(task.text) == "yes"
    assert os.listdir(".") == []
    assert os.environ["HOME"] == os.path.dirname(os.getcwd())
    Path("program.py").write_text("import json, ssl, sqlite3; print(json.dumps(6 * 7))", encoding="utf-8")
    assert subprocess.check_output([sys.executable, "program.py"]) == b"42\n"
    os.rename("program.py", "renamed.py")
    Path(os.environ["HOME"], "kept").touch()
    subprocess.run("git init -q . && git add . && (true | cat) > /dev/null", shell=True, check=True)
    with subprocess.Popen(["sleep", "60"]) as other:
        other.kill()
    return 1.0
