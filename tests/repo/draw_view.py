"""Draw the screenshots of ``docs/how-to/see-inside-a-run.md``: ``draw_view.py RUNS``.

RUNS is a folder with these runs::

    rlcore run -p gsm8k-tools trainer.steps=24 evaluation.every=8 name=calculator
    rlcore run -p gsm8k-tools trainer.steps=16 evaluation.every=8 trainer.learning_rate=1e-3 name=calculator-fast
    rlcore run -p aitw trainer.steps=6 evaluation.every=3 name=phone
    rlcore run -p visual-search trainer.steps=6 evaluation.every=3 name=search
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from rlcore import load_run
from rlcore.api.runs import Run
from rlcore.rollouts.index import Row
from workspace import ROOT

IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 720}
COLORS = 128
"""Of a screenshot, which makes its file half as large."""


def row_of(run: Run, purpose: str, step: int, **wanted: object) -> str:
    """The place of the first trajectory of a step whose row has these values."""
    rows = [row for row in run.index(purpose, step=step) if all(row[name] == value for name, value in wanted.items())]
    return place_of(run, rows[0])


def place_of(run: Run, row: Row) -> str:
    return f"run/{run.path.name}/{row['purpose']}/{row['step']}/{row['group']}/{row['sibling']}"


def mixed_group(run: Run, step: int) -> str:
    """The place of the group of a step with the largest spread of rewards."""
    row = max(run.index("train", step=step), key=lambda row: row["spread"])
    return place_of(run, row).rpartition("/")[0]


def places(runs: Path) -> dict[str, str]:
    """The name of each screenshot, and the place that it shows."""
    calculator, phone, search = (load_run(runs / name) for name in ("calculator", "phone", "search"))
    return {
        "view-runs": "?runs=calculator,calculator-fast",
        "view-group": mixed_group(calculator, 4),
        "view-tokens": f"{mixed_group(calculator, 4)}/0?as=tokens&color=advantage",
        "view-phone": row_of(phone, "evaluation", 6, reward=0.0),
        "view-search": row_of(search, "evaluation", 6, reward=1.0),
    }


def main(runs: Path) -> None:
    command = [sys.executable, "-m", "rlcore", "view", str(runs), "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        address = next(line.split()[1] for line in server.stdout if line.startswith("open"))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.goto(address)
        for name, place in places(runs).items():
            page.goto(f"{address.split('?')[0]}#/{place}")
            page.wait_for_timeout(1500)  # pictures and curves have no common sign that they are drawn
            with Image.open(io.BytesIO(page.screenshot())) as image:
                image.convert("RGB").quantize(COLORS).save(IMAGES / f"{name}.png", optimize=True)
            print(name, (IMAGES / f"{name}.png").stat().st_size)
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
