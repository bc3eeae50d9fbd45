"""Open every page of MiniWoB++, solve those with a known solution, and write the table into the README.

python plugins/rl-plugin-miniwob/survey.py
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from rl_plugin_miniwob.chromium import Chromium
from rl_plugin_miniwob.oracles import ORACLES, solution
from rl_plugin_miniwob.page import Page, pages
from rlcore.errors import EnvironmentFailure
from rlcore_gui.actions import Action

SEEDS = range(20)
README = Path(__file__).with_name("README.md")
BLOCK = re.compile(r"(<!-- survey -->\n).*(<!-- end of survey -->)", re.DOTALL)

times: dict[str, list[float]] = {"open": [], "elements": [], "screenshot": [], "action": []}


def timed(kind: str, function: Callable[..., object], *arguments: object) -> object:
    """The result of a call, whose time is kept."""
    begun = time.perf_counter()
    result = function(*arguments)
    times[kind].append(time.perf_counter() - begun)
    return result


def starts(page: Page, name: str) -> str:
    """An empty text if the page starts with an instruction and shows something that reacts; else why not."""
    try:
        state = timed("open", page.open, name, 0)
        found = timed("elements", page.elements)
        timed("screenshot", page.screenshot)
        page.act(Action(name="CLICK", position=(0.99, 0.99)))
        page.state()
    except EnvironmentFailure as error:
        return str(error)
    if not state.task:
        return "no instruction"
    return "" if found else "no element"


def solved(page: Page, name: str) -> int:
    """The number of seeds that the known solution solves."""
    count = 0
    for seed in SEEDS:
        state = page.open(name, seed)
        for action in solution(name, state.task, page.elements()):
            timed("action", page.act, action)
        count += page.state().reward == 1
    return count


def main() -> None:
    """Measure, and write the table."""
    browser = Chromium()
    page = Page(browser)
    failures = {name: reason for name in pages() if (reason := starts(page, name))}
    counts = {name: solved(page, name) for name in ORACLES}
    version = browser.call("Browser.getVersion")["product"]
    browser.close()
    lines = ["| | |", "|---|---|", f"| pages that start | {len(pages()) - len(failures)} of {len(pages())} |"]
    lines += [f"| {name} | {reason} |" for name, reason in failures.items()]
    full = [name for name, count in counts.items() if count == len(SEEDS)]
    solved_all = f"pages whose known solution gets the reward 1 for all of {len(SEEDS)} seeds"
    lines.append(f"| {solved_all} | {len(full)} of {len(ORACLES)}: {', '.join(full)} |")
    lines += [f"| {name} | {count} of {len(SEEDS)} |" for name, count in counts.items() if name not in full]
    for kind, text in (
        ("open", "reset"),
        ("elements", "list of elements"),
        ("screenshot", "screenshot"),
        ("action", "action"),
    ):
        lines.append(f"| {text} | {1000 * median(times[kind]):.0f} ms |")
    lines.append(f"| browser | {version} |")
    table = "\n".join(lines) + "\n"
    print(table)
    README.write_text(
        BLOCK.sub(lambda found: found[1] + table + found[2], README.read_text(encoding="utf-8")), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
