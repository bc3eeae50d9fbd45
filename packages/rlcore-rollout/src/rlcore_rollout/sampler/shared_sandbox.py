"""The sandbox that all episodes of a process share. It is created when an episode first needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlcore.contracts import Sandbox, SandboxSession
from rlcore.errors import SandboxFailure, UserError

if TYPE_CHECKING:
    from rlcore.runs.progress import Report
    from rlcore.session.components import RunComponents


class SharedSandbox:
    """Opens sessions in the sandbox of a run.

    The backend and its guarantees are printed at the start of a run that declares that it runs code, and otherwise at
    the first use.
    """

    def __init__(self, components: RunComponents, report: Report) -> None:
        self._components, self._report = components, report
        self._sandbox: Sandbox | None = None
        self._told = self._closed = False
        if components.runs_code:
            self._tell()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._report.say(f"sandbox   {self._components.sandbox_choice.line()}")

    async def open(self, images: Sequence[bytes]) -> SandboxSession:
        """Start a session; as `Sandbox.open`."""
        if self._closed:
            raise SandboxFailure("the sandbox of the run is closed")
        if self._sandbox is None:
            try:
                self._tell()
                self._sandbox = self._components.sandbox()
            except UserError as error:
                raise SandboxFailure(str(error)) from error
        return await self._sandbox.open(images)

    async def close(self) -> None:
        """Close the sandbox, if there is one. A second call does nothing."""
        self._closed = True
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await sandbox.close()


__all__ = ["SharedSandbox"]
