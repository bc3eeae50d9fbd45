"""Requests to a sandbox service with the interface of SandboxFusion (https://github.com/bytedance/SandboxFusion).

``POST /run_code`` runs a program with files, and returns what it has printed and files that it has written. Three
outcomes are kept apart: the program ran, the program failed, and the service failed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
from rlcore.endpoints.answers import excerpt, without_key
from rlcore.endpoints.surplus import one_response
from rlcore.endpoints.waiting import backoff_s, retry_after_s
from rlcore.errors import SandboxFailure
from rlcore.json_files import parse_answer

from rlcore_sandbox.config import HttpSandboxConfig

MOST_BYTES = 256 * 2**20
"""Maximum size of an answer in bytes."""
RETRIED = frozenset({408, 409, 425, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A program that the service has run."""

    status: Literal["finished", "failed", "timeout", "too long"]
    """``failed``: with an error as its exit status. ``too long``: the answer exceeds `MOST_BYTES`, which code can
    cause, and is not read."""
    stdout: str
    stderr: str
    files: Mapping[str, bytes]


class _Unusable(Exception):
    """An answer that is no result of the program."""

    def __init__(self, text: str, *, retried: bool = True, wait_s: float | None = None) -> None:
        super().__init__(text)
        self.retried, self.wait_s = retried, wait_s


class SandboxService:
    """Runs programs at a service. Used in one event loop."""

    def __init__(self, config: HttpSandboxConfig) -> None:
        self._config, self._key = config, config.key()
        self._slots = asyncio.Semaphore(config.concurrency)
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            verify=config.base_url.startswith("https:"),  # certificates take time to load
            limits=httpx2.Limits(max_connections=config.concurrency, max_keepalive_connections=config.concurrency),
        )

    async def run(self, code: str, files: Mapping[str, bytes], *, fetch: str, timeout_s: float) -> Ran:
        """Run a Python program.

        Args:
            code: the program
            files: written to its working directory before
            fetch: the file to return afterwards, if it exists
            timeout_s: wall time of the program

        Raises:
            SandboxFailure: the service failed, also after retries.
        """
        body = {
            "code": code,
            "language": "python",
            "run_timeout": timeout_s,
            "files": {name: base64.b64encode(data).decode("ascii") for name, data in files.items()},
            "fetch_files": [fetch],
        }
        async with self._slots:
            for retries in range(self._config.max_retries + 1):
                try:
                    async with asyncio.timeout(timeout_s + self._config.wait_s):
                        return await self._ask(body)
                except TimeoutError:
                    text = f"there is no answer within {timeout_s + self._config.wait_s:g} s"
                    failure, again, wait_s = text, False, None
                except _Unusable as unusable:
                    failure, again, wait_s = str(unusable), unusable.retried, unusable.wait_s
                if not again or retries == self._config.max_retries:
                    break
                await asyncio.sleep(backoff_s(retries) if wait_s is None else min(wait_s, self._config.wait_s))
        where = f"the sandbox service {self._config.base_url}"
        raise SandboxFailure(without_key(f"{where} failed: {failure}", self._key))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _ask(self, body: Mapping[str, Any]) -> Ran:
        try:
            url = f"{self._config.base_url}/run_code"
            with one_response():
                async with self._http.stream("POST", url, json=body, timeout=None) as response:
                    data = bytearray()
                    async for chunk in response.aiter_bytes():
                        data += chunk
                        if len(data) > MOST_BYTES:
                            return Ran(status="too long", stdout="", stderr="", files={})
        except httpx2.HTTPError as error:
            raise _Unusable(f"{type(error).__name__}: {excerpt(str(error))}") from error
        if response.status_code != 200:
            again = response.status_code in RETRIED or response.status_code >= 500
            text = f"status {response.status_code}: {excerpt(bytes(data))}"
            raise _Unusable(text, retried=again, wait_s=retry_after_s(response.headers))
        return _ran(bytes(data))


def _ran(data: bytes) -> Ran:
    """Read the answer to ``/run_code``.

    Raises:
        _Unusable: it is none, or says that the service failed.
    """
    try:
        answer = parse_answer(data)
    except ValueError:
        answer = None
    status, ran = (answer.get("status"), answer.get("run_result")) if isinstance(answer, dict) else (None, None)
    if status == "SandboxError":
        raise _Unusable(f"SandboxError: {excerpt(str(answer.get('message')))}")
    if status not in ("Success", "Failed"):
        raise _Unusable(f"its answer is no result: {excerpt(data)}")
    if not isinstance(ran, dict):
        raise _Unusable(f"it did not run the code: {excerpt(str(answer.get('message') or data))}")
    stages = {"Finished": "finished", "TimeLimitExceeded": "timeout"}
    if ran.get("status") not in stages:
        raise _Unusable(f"it could not run the code: {excerpt(str(ran.get('stderr') or ran.get('status')))}")
    ended: Any = stages[ran["status"]]
    return Ran(
        status="failed" if ended == "finished" and status == "Failed" else ended,
        stdout=str(ran.get("stdout") or ""),
        stderr=str(ran.get("stderr") or ""),
        files=_files(answer.get("files")),
    )


def _files(files: object) -> dict[str, bytes]:
    found = {}
    for name, text in files.items() if isinstance(files, dict) else ():
        try:
            found[name] = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            continue
    return found


__all__ = ["Ran", "SandboxService"]
