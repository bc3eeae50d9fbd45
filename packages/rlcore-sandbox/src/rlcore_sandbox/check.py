"""The check of ``rlcore doctor``: which sandboxes can be used on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from rlcore.checks import Finding
from rlcore.plugins.registry import Registry
from rlcore.session.sandboxes import examine, ranked

SERVICE = "use a sandbox service: sandbox.id=http sandbox.base_url=http://HOST:8080"


def sandboxes() -> Iterator[Finding]:
    """What each sandbox guarantees here, the strongest first. One that is weaker than another is not missed."""
    registry = Registry()
    missed = True
    for choice in [examine(registry, spec.id) for spec in ranked(registry)]:
        support = choice.support
        if support.available:
            used = " (auto)" if missed else ""
            missed = False
            yield Finding(status="ok", text=choice.line().replace(":", f"{used}:", 1))
        else:
            text = f"{choice.spec.id} cannot be used: {support.reason}"
            fix = support.fix or SERVICE
            yield Finding(status="warn" if missed else "ok", text=text, fix=fix if missed else "")
    if missed:
        yield Finding(
            status="warn",
            text="no sandbox can be used: runs that execute code of the model are refused",
            fix=SERVICE,
        )


__all__ = ["sandboxes"]
