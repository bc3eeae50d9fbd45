"""The local sandboxes by their ids, as the hook `rlcore_sandboxes` registers them."""

from __future__ import annotations

from rlcore.types import SandboxLimits

from rlcore_rollout.sandboxes.local import LocalSandbox


def namespaces(config: object, limits: SandboxLimits) -> LocalSandbox:
    """Each session has namespaces of its own."""
    return LocalSandbox("namespaces", limits)


def bubblewrap(config: object, limits: SandboxLimits) -> LocalSandbox:
    """All sessions share the namespaces that bubblewrap creates."""
    return LocalSandbox("bubblewrap", limits)


def landlock(config: object, limits: SandboxLimits) -> LocalSandbox:
    """Sessions without namespaces."""
    return LocalSandbox("landlock", limits)
