"""The sandbox ``http``: sessions on a service with the interface of SandboxFusion.

The service keeps nothing between requests. Each request contains all cells of the session: the earlier ones run again,
without their output, and then the new one. A cell that was killed is not repeated, so it leaves nothing behind.
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
from rlcore.json_files import parse_json
from rlcore.types import CodeResult, SandboxLimits, SandboxSupport

from rlcore_sandbox.config import HttpSandboxConfig
from rlcore_sandbox.inside.texts import cut
from rlcore_sandbox.pictures import check_pictures

if TYPE_CHECKING:
    from rlcore_sandbox.service import Ran

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
    "inside": (
        *("cells", "figures", "frames", "notebook", "output", "processes", "remote", "session", "texts"),
        "tracebacks",
    ),
    "isolation": ("checks", "limits", "scratch"),
}
"""The modules that run at the service."""
REQUEST, RESULT = "rlcore-request.json", "rlcore-result.json"
STARTED, READY = "rlcore driver started", "rlcore session ready"
"""As in `rlcore_sandbox.inside.remote`, which this process never imports."""
OVERHEAD_S = 30.0
"""Time for the start of the program, in addition to the limits of its cells."""
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
    "state is rebuilt by repeating earlier cells",
)


class HttpSandbox:
    """A `rlcore.contracts.Sandbox` at a service."""

    def __init__(self, config: HttpSandboxConfig, limits: SandboxLimits) -> None:
        self._config, self._limits = config, limits
        self._service: Any = None
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
        return HttpSession(self._service, self._config, self._limits, tuple(images))

    async def close(self) -> None:
        """Close all connections. A second call does nothing."""
        self._closed = True
        service, self._service = self._service, None
        if service is not None:
            await service.close()


class HttpSession:
    """A `rlcore.contracts.SandboxSession` at a service."""

    def __init__(
        self, service: Any, config: HttpSandboxConfig, limits: SandboxLimits, images: tuple[bytes, ...]
    ) -> None:
        self._service, self._config, self._limits, self._images = service, config, limits, images
        self._earlier: list[tuple[str, int]] = []
        """The cells to repeat, each with the number of its first image."""
        self._earlier_s = 0.0
        self._next_image = len(images)
        self._turn = asyncio.Lock()
        self._closed = False

    async def run(self, code: str) -> CodeResult:
        """Run a cell; see `rlcore.contracts.SandboxSession`. Concurrent calls run one after the other."""
        async with self._turn:
            return await self._run(code)

    async def _run(self, code: str) -> CodeResult:
        if self._closed:
            raise SandboxFailure("the session of the sandbox is closed")
        cell = (code.encode("utf-8", "replace").decode("utf-8"), self._next_image)
        repeat_s = 2 * self._earlier_s + 5.0
        request = {
            "cells": [*self._earlier, cell],
            "images": [base64.b64encode(image).decode("ascii") for image in self._images],
            "limits": asdict(self._limits),
            "repeat_s": repeat_s,
        }
        content = {**_modules(), REQUEST: json.dumps(request).encode("ascii")}
        timeout_s = OVERHEAD_S + repeat_s + self._limits.cell_s
        ran = await self._service.run(PROGRAM, content, fetch=RESULT, timeout_s=timeout_s)
        if ran.status == "too long":
            return self._reset(status="killed", error=DAMAGED)
        if not ran.stdout.startswith(f"{STARTED}\n{READY}\n"):  # no code has run
            raise SandboxFailure(_why_not_ready(ran, timeout_s))
        if ran.status == "timeout":
            return self._reset(status="timeout", error="The session took too long and was stopped.")
        try:
            if ran.status == "failed":  # the code has ended the process that writes the result
                raise ValueError("no result")
            return await asyncio.to_thread(self._result, cell, _object(ran.files.get(RESULT)))
        except (DataError, LookupError, TypeError, ValueError):  # code may do this: the service has not failed
            return self._reset(status="killed", error=DAMAGED)

    async def close(self) -> None:
        """End the session. A second call does nothing."""
        self._closed = True
        self._earlier.clear()

    def _result(self, cell: tuple[str, int], found: dict[str, Any]) -> CodeResult:
        """The result of the last cell.

        Raises:
            ValueError: it is none.
            DataError: an image is damaged.
        """
        outcome, reason = found.get("outcome"), self._text(found.get("error"))
        if outcome == "lost":
            text = f"The earlier cells of the session could not be repeated: {reason}. The cell was not run."
            return self._reset(status="killed", error=text)
        stdout, stderr = self._text(found.get("stdout")), self._text(found.get("stderr"))
        seconds = float(found["seconds"])
        texts: dict[str, Any] = {"stdout": stdout, "stderr": stderr, "seconds": seconds}
        if outcome in ("timeout", "killed"):
            error = f"The cell was stopped: {reason}. It has left nothing behind."
            if outcome == "timeout":
                error += f" The limits are {self._limits.cell_s:g} s, and {self._limits.cpu_s:g} s of CPU time."
            return CodeResult(status=outcome, error=error, **texts)
        omitted, value, ok = found.get("omitted"), self._text(found.get("value")), found.get("ok")
        if outcome != "reply" or type(ok) is not bool or type(omitted) is not int or omitted < 0 or ok == bool(reason):
            raise ValueError("no result of a cell")
        images = self._pictures(found["images"])
        names = tuple(f"image_clue_{self._next_image + index}" for index in range(len(images)))
        self._next_image += len(images)
        self._earlier.append(cell)
        self._earlier_s += seconds
        reset = found.get("left") is True or self._earlier_s > self._config.repeat_s
        if reset:
            self._forget()
        return CodeResult(
            status="ok" if ok else "error",
            value=value,
            error=reason,
            images=images,
            image_names=names,
            omitted_images=omitted,
            reset=reset,
            **texts,
        )

    def _pictures(self, encoded: object) -> tuple[bytes, ...]:
        if not isinstance(encoded, list) or len(encoded) > self._limits.images:
            raise ValueError("the images of a result")
        found = tuple(base64.b64decode(image, validate=True) for image in encoded)
        check_pictures(found, self._limits.image_pixels)
        return found

    def _text(self, text: object) -> str:
        if not isinstance(text, str):
            raise ValueError("a text of a result")
        return cut(text.encode("utf-8", "replace").decode("utf-8"), self._limits.output_characters)

    def _reset(self, **fields: Any) -> CodeResult:
        self._forget()
        return CodeResult(reset=True, **fields)

    def _forget(self) -> None:
        self._earlier.clear()
        self._earlier_s = 0.0


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
    found = parse_json(data or b"null")
    if not isinstance(found, dict):
        raise ValueError("no result")
    return found


__all__ = ["HttpSandbox", "HttpSession", "available"]
