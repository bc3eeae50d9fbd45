"""A sandbox that keeps the contract and confines nothing: a Python process for each session. Only for code of tests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from rlcore.errors import SandboxFailure
from rlcore.types import CodeResult, SandboxLimits

LOOP = r"""
import ast, base64, io, json, os, sys, traceback
connection = os.fdopen(os.dup(1), "w")
given = json.loads(sys.stdin.readline())
names, shown = {}, []
if given["images"]:
    from PIL import Image
    for index, image in enumerate(given["images"]):
        names[f"image_clue_{index}"] = Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB")
    Image.Image.show = lambda image: shown.append(image)
print(json.dumps({}), file=connection, flush=True)
for line in sys.stdin:
    cell = json.loads(line)
    shown.clear()
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    value = error = ""
    try:
        tree = ast.parse(cell["code"])
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<cell>", "exec"), names)
        found = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None
        if hasattr(found, "resize"):
            shown.append(found)
        elif found is not None:
            value = repr(found)
    except BaseException as raised:
        error = traceback.format_exc()
    pictures = []
    for index, image in enumerate(shown[: given["most"]]):
        image.thumbnail((int(given["pixels"] ** 0.5),) * 2) if image.width * image.height > given["pixels"] else None
        names[f"image_clue_{cell['first'] + index}"] = image
        image.save(written := io.BytesIO(), "PNG")
        pictures.append(base64.b64encode(written.getvalue()).decode())
    answer = {"out": sys.stdout.getvalue(), "err": sys.stderr.getvalue(), "value": value, "error": error}
    omitted = len(shown) - len(pictures)
    print(json.dumps({**answer, "images": pictures, "omitted": omitted}), file=connection, flush=True)
"""


class PlainSandbox:
    def __init__(self, config: object, limits: SandboxLimits) -> None:
        self.limits = limits
        self.sessions: list[PlainSession] = []

    async def open(self, images: Sequence[bytes]) -> PlainSession:
        session = PlainSession(self.limits, images)
        await session.start()
        self.sessions.append(session)
        return session

    async def close(self) -> None:
        for session in self.sessions:
            await session.close()


class PlainSession:
    def __init__(self, limits: SandboxLimits, images: Sequence[bytes]) -> None:
        self.limits, self.images = limits, images
        self.next_image = len(images)
        self.lost = False
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="plain-sandbox-")
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-c", LOOP)
        none = asyncio.subprocess.DEVNULL
        folder = self.folder.name
        self.process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=none, cwd=folder, limit=2**26
        )
        images = [base64.b64encode(image).decode() for image in self.images]
        given = {"images": images, "most": self.limits.images, "pixels": self.limits.image_pixels}
        if await self.asked(given) is None:
            await self.kill()
            raise SandboxFailure("the session does not start")

    async def asked(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The answer of the process; None if it has ended."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            await self.process.stdin.drain()
        line = await self.process.stdout.readline()
        return json.loads(line) if line else None

    async def run(self, code: str) -> CodeResult:
        if self.process is None:
            await self.start()
        start, status = time.perf_counter(), "killed"
        try:
            async with asyncio.timeout(self.limits.cell_s):
                answer = await self.asked({"code": code, "first": self.next_image})
        except TimeoutError:
            answer, status = None, "timeout"
        except asyncio.CancelledError:
            self.lost = True
            await self.kill()
            raise
        lost, self.lost = self.lost, False
        seconds = time.perf_counter() - start
        if answer is None:
            await self.kill()
            error = "it was stopped"
            return CodeResult(status=status, error=error, reset=True, seconds=seconds)  # type: ignore[arg-type]
        images = tuple(map(base64.b64decode, answer["images"]))
        names = tuple(f"image_clue_{self.next_image + index}" for index in range(len(images)))
        self.next_image += len(images)
        texts = {name: self.cut(answer[key]) for name, key in zip(TEXTS, ("out", "err", "value", "error"), strict=True)}
        return CodeResult(
            status="error" if answer["error"] else "ok",
            images=images,
            image_names=names,
            omitted_images=answer["omitted"],
            reset=lost,
            seconds=seconds,
            **texts,
        )

    def cut(self, text: str) -> str:
        half = self.limits.output_characters // 2
        return text if len(text) <= 2 * half else f"{text[:half]} ... {text[-half:]}"

    async def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()
            self.folder.cleanup()

    async def close(self) -> None:
        await self.kill()


TEXTS = ("stdout", "stderr", "value", "error")
