"""The last steps of every backend: no new privileges, no capabilities, landlock and seccomp."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import interpreter, kernel, landlock, seccomp

CAP_SYS_ADMIN = 21


def create_ruleset() -> int:
    """Landlock's ruleset for the interpreter: reading it, and using harmless devices."""
    trees, folders = interpreter.readable()
    ruleset = landlock.create_ruleset(trees, folders)
    for device in interpreter.DEVICES:
        landlock.allow(ruleset, device, landlock.READ_FILE | landlock.WRITE_FILE)
    return ruleset


def become(user: int) -> None:
    """Change from root to an unprivileged user with the group of the same number, and no other groups."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def confine(rulesets: Sequence[int], program: bytes) -> None:
    """Confine this single-threaded process for good.

    Args:
        rulesets: of landlock, all of which apply
        program: by `seccomp.program`
    """
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.drop_capabilities()
    for ruleset in rulesets:
        landlock.restrict(ruleset)
    seccomp.install(program)
