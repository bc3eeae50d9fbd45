"""The sandbox ``http``: cells on a service with the interface of SandboxFusion.

The service keeps nothing between requests, and each request runs one cell. A session is therefore reset after each
cell, and each result says so.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rlcore import event_loop
from rlcore.errors import DataError, NotInstalledError, SandboxFailure, UserError
from rlcore.images.encoding import check_image
from rlcore.json_files import parse_answer
from rlcore.types import CodeResult, SandboxLimits, SandboxSupport

from rlcore_sandbox.config import HttpSandboxConfig
from rlcore_sandbox.inside.output import cut
from rlcore_sandbox.results import check_pictures, checked_text, reply_fields

if TYPE_CHECKING:
    from rlcore_sandbox.service import Ran, SandboxService

PROGRAM = """\
import os, sys
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["MPLBACKEND"] = "agg"
sys.path.insert(0, os.getcwd())
from rlcore_sandbox.inside.remote import main
main()
"""
PACKAGE = "rlcore_sandbox"
SENT = {
    "inside": ("cells", "figures", "frames", "output", "processes", "remote", "session"),
    "isolation": ("limits",),
}
"""The modules that run at the service."""
REQUEST, RESULT = "rlcore-request.json", "rlcore-result.json"
STARTED, READY = "rlcore driver started", "rlcore session ready"
"""As in `rlcore_sandbox.inside.remote`, which this process never imports."""
OVERHEAD_S = 30.0
"""Time for the start of the program, in addition to the limits of its cell."""
LONGEST_REASON = 1000
DAMAGED = "The code damaged its session, which was stopped."
PROBE_S = 15.0
"""Maximum time of the check whether the service can be used."""

HOLDS = (
    "the wall time of a cell, and CPU time, memory, open files and the size of each file of a process, are limited",
    "processes, and the memory and the files of all of them, are checked several times a second",
)
"""What the program at the service sees to."""
LACKS = (
    "code that kills the process which checks them, or writes outside of its folder, meets only the service's limits",
    "shared memory is not limited",
    "CPU time is limited for each process, not for their sum",
    "variables do not persist: each cell runs in a new process with the initial images",
)


class HttpSandbox:
    """A `rlcore.contracts.Sandbox` at a service."""

    def __init__(self, config: HttpSandboxConfig, limits: SandboxLimits) -> None:
        self._config, self._limits = config, limits
        self._service: SandboxService | None = None
        self._closed = False

    async def open(self, images: Sequence[bytes]) -> HttpSession:
        """A new session. The service is asked when the first cell runs.

        Raises:
            SandboxFailure: an image cannot be read.
        """
        from rlcore_sandbox.service import SandboxService

        if self._closed:
            raise SandboxFailure("the sandbox is closed")
        try:
            for image in images:
                await asyncio.to_thread(check_image, image)
        except DataError as error:
            raise SandboxFailure(f"an image of the session cannot be read: {error.message}") from error
        if self._service is None:
            try:
                self._service = SandboxService(self._config)
            except UserError as error:
                raise SandboxFailure(str(error)) from error
        return HttpSession(self._service, self._limits, tuple(images))

    async def close(self) -> None:
        """Close all connections. A second call does nothing."""
        self._closed = True
        service, self._service = self._service, None
        if service is not None:
            await service.close()


class HttpSession:
    """A `rlcore.contracts.SandboxSession` at a service."""

    def __init__(self, service: SandboxService, limits: SandboxLimits, images: tuple[bytes, ...]) -> None:
        self._service, self._limits, self._images = service, limits, images
        self._next_image = len(images)
        self._closed = False

    async def run(self, code: str) -> CodeResult:
        """Run a cell; see `rlcore.contracts.SandboxSession`. Images are numbered on from cell to cell."""
        if self._closed:
            raise SandboxFailure("the session of the sandbox is closed")
        request = {
            "code": code.encode("utf-8", "replace").decode("utf-8"),
            "first": self._next_image,
            "images": [base64.b64encode(image).decode("ascii") for image in self._images],
            "limits": asdict(self._limits),
        }
        content = {**_modules(), REQUEST: json.dumps(request).encode("ascii")}
        timeout_s = OVERHEAD_S + self._limits.cell_s
        ran = await self._service.run(PROGRAM, content, fetch=RESULT, timeout_s=timeout_s)
        if ran.status == "too long":
            return CodeResult(status="killed", error=DAMAGED, reset=True)
        if not ran.stdout.startswith(f"{STARTED}\n{READY}\n"):  # no code has run
            raise SandboxFailure(_why_not_ready(ran, timeout_s))
        if ran.status == "timeout":
            return CodeResult(status="timeout", error="The cell took too long and was stopped.", reset=True)
        try:
            if ran.status == "failed":  # the code has ended the process that writes the result
                raise ValueError("no result")
            return await asyncio.to_thread(self._result, _object(ran.files.get(RESULT)))
        except (DataError, LookupError, TypeError, ValueError):  # code may do this: the service has not failed
            return CodeResult(status="killed", error=DAMAGED, reset=True)

    async def close(self) -> None:
        """End the session. A second call does nothing."""
        self._closed = True

    def _result(self, found: dict[str, Any]) -> CodeResult:
        """The result of the cell.

        Raises:
            ValueError: it is none.
            DataError: an image is damaged.
        """
        limits, outcome, seconds = self._limits, found.get("outcome"), found.get("seconds")
        fields: dict[str, Any]
        images: tuple[bytes, ...] = ()
        if outcome == "reply":
            fields, images = reply_fields(found, limits), self._pictures(found.get("images"))
        elif outcome in ("timeout", "killed"):
            error = f"The cell was stopped: {checked_text(found.get('error'), limits)}."
            if outcome == "timeout":
                error += f" The limits are {limits.cell_s:g} s, and {limits.cpu_s:g} s of CPU time."
            fields = {"status": outcome, "error": error}
        else:
            raise ValueError("no result of a cell")
        if type(seconds) is not float or not 0 <= seconds < float("inf"):
            raise ValueError("the time of a cell")
        names = tuple(f"image_clue_{self._next_image + index}" for index in range(len(images)))
        self._next_image += len(images)
        return CodeResult(
            stdout=checked_text(found.get("stdout"), limits),
            stderr=checked_text(found.get("stderr"), limits),
            images=images,
            image_names=names,
            seconds=seconds,
            reset=True,
            **fields,
        )

    def _pictures(self, encoded: object) -> tuple[bytes, ...]:
        if not isinstance(encoded, list) or len(encoded) > self._limits.images:
            raise ValueError("the images of a result")
        found = tuple(base64.b64decode(image, validate=True) for image in encoded)
        check_pictures(found, self._limits.image_pixels)
        return found


def available(config: HttpSandboxConfig | None) -> SandboxSupport:
    """Whether the service runs a cell."""
    if config is None:
        return SandboxSupport(reason="it needs the URL of a service", fix="sandbox.id=http sandbox.base_url=URL")
    limits = SandboxLimits(cell_s=5.0, cpu_s=5.0)
    try:
        result = event_loop.run(_probe(config.model_copy(update={"max_retries": 0, "wait_s": 5.0}), limits))
    except (SandboxFailure, NotInstalledError, TimeoutError) as error:
        text = str(error) or f"{config.base_url} did not answer within {PROBE_S:g} s"
        return SandboxSupport(reason=text, fix="start the service, or change sandbox.base_url")
    if result.value != "42":
        return SandboxSupport(
            reason=f"{config.base_url} did not answer 6 * 7 with 42: {result.error or result.value}",
            fix="check sandbox.base_url, and use a service with Python 3.10 or newer",
        )
    return SandboxSupport(
        guarantees=(f"code runs on the machines of {config.base_url}, isolated as its operator has configured", *HOLDS),
        lacks=LACKS,
    )


async def _probe(config: HttpSandboxConfig, limits: SandboxLimits) -> CodeResult:
    sandbox = HttpSandbox(config, limits)
    try:
        async with asyncio.timeout(PROBE_S):
            return await (await sandbox.open(())).run("6 * 7")
    finally:
        await sandbox.close()


@cache
def _modules() -> dict[str, bytes]:
    """The files that run at the service, by their paths there."""
    root = files(PACKAGE)
    packages = ("", *(f"{folder}/" for folder in SENT))
    found = {f"{PACKAGE}/{package}__init__.py": b"" for package in packages}
    for folder, names in SENT.items():
        for name in names:
            found[f"{PACKAGE}/{folder}/{name}.py"] = (root / folder / f"{name}.py").read_bytes()
    return found


def _why_not_ready(ran: Ran, timeout_s: float) -> str:
    if not ran.stdout.startswith(STARTED):
        said = (ran.stderr.strip().splitlines() or ["nothing"])[-1]
        return f"the sandbox service cannot run sessions, which need Python 3.10 or newer: {said}"
    if ran.status == "timeout":
        return f"the sandbox service did not start the session within {timeout_s:g} s"
    try:
        reason = str(_object(ran.files.get(RESULT)).get("error"))
    except ValueError:
        reason = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return f"the sandbox service cannot start the session: {cut(reason, LONGEST_REASON)}"


def _object(data: bytes | None) -> dict[str, Any]:
    found = parse_answer(data or b"null")
    if not isinstance(found, dict):
        raise ValueError("no result")
    return found


__all__ = ["HttpSandbox", "HttpSession", "available"]
