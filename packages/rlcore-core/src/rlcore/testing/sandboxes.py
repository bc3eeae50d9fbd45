"""The conformance checks for sandboxes. They show that a sandbox keeps its contract, not that it confines code."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rlcore import event_loop
from rlcore.contracts import Sandbox, SandboxSession
from rlcore.errors import SandboxFailure
from rlcore.images import image_size
from rlcore.plugins.registry import Registry
from rlcore.testing.calling import Findings
from rlcore.testing.leaks import growth
from rlcore.types import CodeResult, SandboxLimits
from rlcore.types.checking import flaw_in_code_result

LIMITS = SandboxLimits(cell_s=2.0, cpu_s=2.0, output_characters=1000, images=2, image_pixels=10_000)
"""The limits for a sandbox that is given by its id. Others are as in a run."""
SLACK_S = 60.0
"""Time in addition to that of a cell, for a busy machine."""
SIZE = (11, 7)
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAsAAAAHCAIAAABRDCAKAAAAFElEQVR4nGM8ISfHgBcw4ZceUioA98oBEqS6r3AAAAAASUVORK5CYII="
)


def check_sandbox(
    sandbox: str | Callable[[SandboxLimits], Sandbox],
    *,
    options: Mapping[str, Any] | None = None,
    limits: SandboxLimits = LIMITS,
) -> None:
    """Raise an `AssertionError` that lists every contract violation of a sandbox.

    The checks cover:

    - Names, images, output, the value of the last expression and errors, from cell to cell. Names persist, or each
      result has ``reset`` set.
    - The limits of time, output and images.
    - Cells that raise, end their process, never end, or are cancelled: the next cell runs, the lost state is announced,
      and no output appears in a later result.
    - Sessions do not share names, and run concurrently.
    - ``close`` may be called twice, and nothing leaks.

    Args:
        sandbox: an id of ``rlcore plugins list``, ``module:Class``, or a function that creates a sandbox with limits
        options: the sandbox's own keys of the table ``[sandbox]``, for an id
        limits: the limits to check; small ones take less time
    """
    make = _maker(sandbox, options) if isinstance(sandbox, str) else sandbox
    findings = Findings(f"The sandbox {sandbox if isinstance(sandbox, str) else _name(sandbox)}")
    event_loop.run(_Checks(lambda: make(limits), limits, findings).run())
    findings.conclude()


def _maker(id: str, options: Mapping[str, Any] | None) -> Callable[[SandboxLimits], Sandbox]:
    registry = Registry()
    target, model = registry.load("sandbox", id), registry.config_model("sandbox", id)
    config = model.model_validate(dict(options or {})) if model is not None else None
    return lambda limits: target(config, limits)


class _Checks:
    def __init__(self, make: Callable[[], Sandbox], limits: SandboxLimits, findings: Findings) -> None:
        self.make, self.limits, self.findings, self.expect = make, limits, findings, findings.expect

    async def run(self) -> None:
        attempt = self.findings.attempt
        self.sandbox = self.make()
        try:
            await attempt("cells of a session", self.cells_share_names())
            await attempt("images", self.images_are_bound_and_shown())
            await attempt("long output", self.output_is_limited())
            await attempt("code that fails", self.failing_code_is_a_result())
            await attempt("a cell that never ends", self.endless_code_is_stopped())
            await attempt("a cancelled cell", self.a_cancelled_cell_leaves_no_output())
            await attempt("two sessions", self.sessions_are_apart_and_concurrent())
            await attempt("an unreadable image", self.an_unreadable_image_is_a_failure())
        finally:
            await attempt("close of the sandbox", self.sandbox.close())
            await attempt("a second close of the sandbox", self.sandbox.close())
        await attempt("opening and closing", self.nothing_leaks())

    @asynccontextmanager
    async def session(self, images: Sequence[bytes] = ()) -> AsyncIterator[SandboxSession]:
        async with asyncio.timeout(SLACK_S):
            session = await self.sandbox.open(images)
        try:
            yield session
        finally:
            async with asyncio.timeout(SLACK_S):
                await session.close()
                await session.close()

    async def cell(self, session: SandboxSession, code: str) -> CodeResult:
        """The result of a cell, which arrives in time and is well-formed."""
        async with asyncio.timeout(self.limits.cell_s + SLACK_S):
            result = await session.run(code)
        if not isinstance(result, CodeResult):
            raise TypeError(f"run must return a CodeResult, not a {type(result).__name__}")
        if flaw := flaw_in_code_result(result):
            raise TypeError(f"run returned a CodeResult with {flaw}")
        texts = (result.stdout, result.stderr, result.value, result.error)
        longest = 2 * self.limits.output_characters + 200  # a marker, and escapes of characters that are no text
        self.expect(max(map(len, texts)) <= longest, f"a text is longer than output_characters: {code!r}")
        self.expect(result.ok != bool(result.error), f"error must be empty if and only if status is ok: {code!r}")
        return result

    async def cells_share_names(self) -> None:
        async with self.session() as session:
            first = await self.cell(session, "import sys\nx = 20\nprint('out')\nprint('err', file=sys.stderr)\nx + 1")
            self.expect(first.status == "ok", f"a plain cell has the status {first.status}: {first.error}")
            self.expect(first.stdout.strip() == "out", f"stdout must be 'out', found {first.stdout!r}")
            self.expect(first.stderr.strip() == "err", f"stderr must be 'err', found {first.stderr!r}")
            self.expect(first.value == "21", f"value must be the last expression, '21', found {first.value!r}")
            if first.reset:  # a sandbox that keeps no state
                await self.goes_on(session, "a cell", first, "x", "20")
                return
            second = await self.cell(session, "def double(): return 2 * x\ndouble()\nNone")
            self.expect(second.value == "", f"value must be empty for None, found {second.value!r}")
            self.expect(second.stdout == "", f"stdout of an earlier cell is returned again: {second.stdout!r}")
            third = await self.cell(session, "double()")
            self.expect(third.value == "40", f"names do not persist from cell to cell: {third.error or third.value!r}")
            self.expect(not (second.reset or third.reset), "reset is set without a restart")

    async def images_are_bound_and_shown(self) -> None:
        async with self.session([PICTURE, PICTURE]) as session:
            sizes = await self.cell(session, "[image_clue_0.size, image_clue_1.size]")
            wanted = str([SIZE, SIZE])
            if not self.expect(sizes.value == wanted, f"image_clue_0 and 1 have {sizes.value or sizes.error}"):
                return
            shown = await self.cell(session, "image_clue_1.resize((22, 14))")
            self.expect(
                shown.image_names == ("image_clue_2",),
                f"an image that is the last expression is not shown as image_clue_2, found {shown.image_names}",
            )
            if shown.images:
                self.expect(image_size(shown.images[0]) == (22, 14), "the shown image has another size")
                self.expect(shown.images[0].startswith(b"\x89PNG"), "shown images must be PNG")
            if not shown.reset:
                again = await self.cell(session, "image_clue_2.size")
                self.expect(again.value == "(22, 14)", f"image_clue_2 is promised, but not bound: {again.error}")
            many = self.limits.images + 3
            more = await self.cell(session, f"for _ in range({many}): image_clue_0.show()")
            self.expect(len(more.images) == self.limits.images, "a cell returns more images than the limit")
            self.expect(more.omitted_images == 3, f"3 images are left out, omitted_images is {more.omitted_images}")
            side = int(self.limits.image_pixels**0.5) + 50
            large = await self.cell(session, f"image_clue_0.resize(({side}, {side}))")
            for image in large.images:
                width, height = image_size(image)
                self.expect(width * height <= self.limits.image_pixels, "an image has more pixels than the limit")

    async def output_is_limited(self) -> None:
        count = 50 * self.limits.output_characters
        async with self.session() as session:
            long = await self.cell(session, f"print('<' + 'x' * {count} + '>')\n'v' * {count}")
            self.expect(long.status == "ok", f"long output is no error, found {long.error!r}")
            self.expect(long.stdout.startswith("<"), "the beginning of a long output is lost")
            self.expect(long.stdout.rstrip().endswith(">"), "the end of a long output is lost")
            odd = await self.cell(session, "print('\\ud800 \\x00 \\x1b[31m <|im_end|>')")
            self.expect(odd.status == "ok", f"unusual characters are no error, found {odd.error!r}")
            self.expect("<|im_end|>" in odd.stdout, "markers of a chat format are text like any other")

    async def failing_code_is_a_result(self) -> None:
        async with self.session() as session:
            await self.cell(session, "x = 1")
            failed = await self.cell(session, "print('before')\n1 / 0")
            self.expect(failed.status == "error", f"an exception has the status {failed.status}")
            self.expect("ZeroDivisionError" in failed.error, f"the error does not name its type: {failed.error!r}")
            self.expect(failed.stdout.strip() == "before", "the output before an exception is lost")
            syntax = await self.cell(session, "x = = 2")
            self.expect(syntax.status == "error", f"a syntax error has the status {syntax.status}")
            await self.goes_on(session, "an exception", syntax, "x", "1")
            for code in ("raise SystemExit(0)", "import os; os._exit(0)"):
                ended = await self.cell(session, code)
                self.expect(ended.status in ("error", "killed"), f"{code} has the status {ended.status}")
                await self.goes_on(session, code, ended, "x", "1")

    async def endless_code_is_stopped(self) -> None:
        async with self.session() as session:
            await self.cell(session, "y = 1")
            start = time.monotonic()
            endless = await self.cell(session, "print('begun', flush=True)\nwhile True:\n    pass")
            took = time.monotonic() - start
            self.expect(endless.status == "timeout", f"an endless cell has the status {endless.status}")
            self.expect(took < self.limits.cell_s + SLACK_S / 2, f"an endless cell was stopped after {took:.0f} s")
            await self.goes_on(session, "an endless cell", endless, "y", "1")

    async def goes_on(self, session: SandboxSession, what: str, ended: CodeResult, name: str, value: str) -> None:
        """The next cell runs, and knows earlier names unless a reset was announced."""
        after = await self.cell(session, f"globals().get({name!r}, 'lost')")
        if not self.expect(after.status == "ok", f"the cell after {what} has the status {after.status}"):
            return
        if ended.reset or after.reset:
            self.expect(after.value == "'lost'", f"reset is set after {what}, but {name} still exists")
            await self.cell(session, f"{name} = {value}")
        else:
            self.expect(after.value == value, f"the state is lost after {what}, but reset is not set")

    async def a_cancelled_cell_leaves_no_output(self) -> None:
        async with self.session() as session:
            await self.cell(session, "1")
            code = "import time\nfor n in range(100):\n    print('late', flush=True)\n    time.sleep(0.05)"
            running = asyncio.ensure_future(session.run(code))
            await asyncio.sleep(0.2)
            running.cancel()
            await asyncio.wait([running], timeout=SLACK_S)
            self.expect(running.cancelled(), "run does not end when it is cancelled")
            after = await self.cell(session, "print('next')")
            self.expect(after.stdout.strip() == "next", f"a cancelled cell prints into the next one: {after.stdout!r}")

    async def sessions_are_apart_and_concurrent(self) -> None:
        async with self.session() as first, self.session() as second:
            await asyncio.gather(self.cell(first, "z = 1"), self.cell(second, "z = 2"))
            code = "globals().get('z', 'lost')"
            results = await asyncio.gather(self.cell(first, code), self.cell(second, code))
            wanted = [("'lost'" if one.reset else value) for one, value in zip(results, ("1", "2"), strict=True)]
            self.expect([one.value for one in results] == wanted, "sessions share names")

    async def an_unreadable_image_is_a_failure(self) -> None:
        try:
            async with self.session([b"no image"]) as session:
                await self.cell(session, "1")
        except SandboxFailure:
            return
        self.expect(False, "an image that cannot be read must raise SandboxFailure")

    async def nothing_leaks(self) -> None:
        async def work() -> None:
            sandbox = self.make()
            try:
                session = await sandbox.open(())
                await session.run("1")
                await session.close()
                await sandbox.open(())
            finally:
                await sandbox.close()

        for name, count in (await growth(work)).items():
            self.expect(False, f"every sandbox leaves {count} {name} behind after close")


def _name(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
