"""The page of a run with 100,000 trajectories in Chromium: opening, scrolling, searches, and memory of the server."""

from __future__ import annotations

import atexit
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _large_run import RARE, write_large_run
from comparison import Comparison
from playwright.sync_api import Page, expect, sync_playwright

VERSIONS = ("rlcore-view", "starlette", "uvicorn", "playwright")
TRAJECTORIES, SMOKE = 100_000, 800
OPENS_S, FRAME_S, SEARCHES_S, MEMORY_MB = 1.5, 1 / 50, 3.0, 250.0
FRAMES = 120
SCROLL = """(pixels) => new Promise((done) => {
  const box = document.querySelector('[role=grid]');
  const start = performance.now();
  let left = pixels.frames;
  const next = () => {
    box.scrollTop += pixels.step;
    if (left-- > 0) requestAnimationFrame(next); else done((performance.now() - start) / pixels.frames / 1000);
  };
  requestAnimationFrame(next);
})"""
"""Scrolls a table frame by frame, and returns the mean time of a frame in seconds."""


class Opened:
    """A server of the run, and a page in a browser."""

    def __init__(self, run: Path) -> None:
        command = [sys.executable, "-m", "rlcore", "view", str(run), "--port", "0", "--no-browser"]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self.server.terminate)
        assert self.server.stdout is not None
        address = next(line.split()[1] for line in self.server.stdout if line.startswith("open"))
        playwright = sync_playwright().start()
        atexit.register(playwright.stop)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        self.page: Page = browser.new_page(viewport={"width": 1280, "height": 720})
        self.page.goto(address)
        self._start = address.split("?")[0]

    def seconds(self, place: str, shown: str) -> float:
        """How long a place of the run takes until it shows a text."""
        self.page.goto("about:blank")
        start = time.perf_counter()
        self.page.goto(f"{self._start}#/run/large{place}")
        expect(self.page.locator("main")).to_contain_text(re.compile(shown), timeout=60_000)
        return time.perf_counter() - start

    def frame(self) -> float:
        """The mean time of a frame while the table of a step scrolls."""
        self.seconds("/train/20", "groups")
        self.page.locator("[role=grid]").first.wait_for()
        return float(self.page.evaluate(SCROLL, {"frames": FRAMES, "step": 200}))

    def memory(self) -> float:
        """The largest resident memory of the server so far, in MB."""
        status = Path(f"/proc/{self.server.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Budgets for what a user waits for, and for memory, which is read last."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_large_run(folder / "large", SMOKE if smoke else TRAJECTORIES)
    opened = Opened(folder / "large")
    return [
        Comparison(name="open", ours=lambda: opened.seconds("", "Training steps"), peer=OPENS_S, floor=1.0),
        Comparison(name="step", ours=lambda: opened.seconds("/train/20", "groups"), peer=OPENS_S, floor=1.0),
        Comparison(name="frame", ours=opened.frame, peer=FRAME_S, floor=1.0),
        Comparison(
            name="condition",
            ours=lambda: opened.seconds("/find?where=tool_errors > 0", "of [0-9,]+ trajectories"),
            peer=SEARCHES_S,
            floor=1.0,
        ),
        Comparison(
            name="text",
            ours=lambda: opened.seconds(f"/find?text={RARE}", "of [0-9,]+ trajectories"),
            peer=SEARCHES_S,
            floor=1.0,
        ),
        Comparison(name="memory", ours=opened.memory, peer=MEMORY_MB, floor=1.0, unit="MB"),
    ]
