"""The local sandboxes, as the hook `rlcore_sandboxes` registers them."""

from __future__ import annotations

from rlcore.types import SandboxLimits

from rlcore_sandbox.local import LocalSandbox


class NamespacesSandbox(LocalSandbox):
    """Each session has namespaces of its own."""

    def __init__(self, config: object, limits: SandboxLimits) -> None:
        super().__init__("namespaces", limits)


class BubblewrapSandbox(LocalSandbox):
    """All sessions share the namespaces that bubblewrap creates."""

    def __init__(self, config: object, limits: SandboxLimits) -> None:
        super().__init__("bubblewrap", limits)


class LandlockSandbox(LocalSandbox):
    """Sessions without namespaces."""

    def __init__(self, config: object, limits: SandboxLimits) -> None:
        super().__init__("landlock", limits)
