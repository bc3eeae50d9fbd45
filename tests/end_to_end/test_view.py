"""``rlcore view`` and ``rlcore report`` in a real browser: what a user finds there, and what hostile data cannot do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from page_packages import installed_page
from PIL import Image, ImageDraw
from preloaded import rlcore_command
from rlcore import load_run
from rlcore.rollouts.writing import write_record
from rlcore.testing import make_trajectory
from rlcore.types import (
    Group,
    Logprobs,
    LossMask,
    Message,
    NumberArray,
    RewardResult,
    Segment,
    Task,
    TokenIds,
    ToolCall,
    Trajectory,
    Turn,
)
from troubled_run import troubled_run

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def episode(reward: int) -> Trajectory:
    """An episode of a robot with a camera, whose square moves to the right."""
    frames, steps = bytearray(), 6
    for step in range(steps):
        image = Image.new("RGB", (48, 32), (40, 40, 40))
        ImageDraw.Draw(image).rectangle((6 * step, 10, 6 * step + 8, 18), fill=(230, 120, 20))
        frames += image.tobytes()
    arrays = {
        "observation/camera": NumberArray(dtype="uint8", shape=(steps, 32, 48, 3), data=bytes(frames)),
        "observation/joints": NumberArray.of(np.array([[0.1 * n, reward] for n in range(steps)])),
        "action/joints": NumberArray.of(np.array([[0.1, -0.1 * n] for n in range(steps)])),
    }
    turns = tuple(Turn(kind="policy", start=n, end=n + 1, messages=(), reward=reward / 10) for n in range(steps))
    segment = Segment(
        token_ids=TokenIds([0] * steps),
        loss_mask=LossMask([True] * steps),
        logprobs=Logprobs([-1.0] * steps),
        turns=turns,
        arrays=arrays,
    )
    return Trajectory(task_id=f"reach/{reward}", sibling=0, segments=(segment,), reward=float(reward))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run in which some trajectories are not scored and some groups are dropped, and a control run."""
    folder = tmp_path_factory.mktemp("view")
    wrong = troubled_run(folder)
    arms = wrong.with_name("arms")
    shutil.copytree(wrong, arms, ignore=shutil.ignore_patterns("*.gz", "*.safetensors", "checkpoints"))
    groups = [Group(task=Task(id=f"reach/{n}", messages=()), trajectories=(episode(n),)) for n in range(4)]
    write_record(arms / "rollouts" / "evaluation-000003.jsonl.gz", groups)
    return folder / "runs"


class Served:
    """A server of some runs."""

    def __init__(self, *runs: Path) -> None:
        command = [sys.executable, "-m", "rlcore", "view", *map(str, runs), "--port", "0", "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, "")
        self.address = next(line.split()[1] for line in lines if line.startswith("open"))

    def at(self, place: str) -> str:
        """The address of a place, without the token: the browser has a cookie by then."""
        return f"{self.address.split('?')[0]}#/{place}"

    def close(self) -> None:
        self.process.terminate()
        assert self.process.wait(20) in (0, 143)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def served(runs: Path) -> Iterator[Served]:
    server = Served(runs)
    yield server
    server.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: sync_api.Browser) -> Iterator[sync_api.Page]:
    """A page in which every error and every request to another server fails the test."""
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.set_default_timeout(10_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}") or dialog.dismiss())
    page.on("console", lambda said: problems.append(said.text) if is_error(said) else None)
    page.on("request", lambda one: problems.append(one.url) if not re.match(LOCAL, one.url) else None)
    yield page
    page.close()
    assert problems == []


def is_error(said: sync_api.ConsoleMessage) -> bool:
    """Whether the page did something wrong; answers such as 404 are shown by the page."""
    return said.type == "error" and not said.text.startswith("Failed to load resource")


LOCAL = r"http://127\.0\.0\.1:\d+/|file:///|data:"


def go(page: sync_api.Page, served: Served, place: str) -> None:
    page.goto(served.address)  # sets the cookie
    page.goto(served.at(place))


def test_user_finds_out_why_groups_cannot_be_trained(page: sync_api.Page, served: Served) -> None:
    page.goto(served.address)
    page.get_by_role("link", name="wrong", exact=True).first.click()
    page.get_by_role("heading", name="Curves").wait_for()
    page.goto(served.at("run/wrong/train/2"))
    page.get_by_text("dropped").first.wait_for()
    page.goto(served.at("run/wrong/find?where=reward is None&purpose=train"))
    first = page.get_by_role("grid", name="Trajectories").get_by_role("link").first
    place = first.get_attribute("href")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_text("the judge is overloaded").first.wait_for()
    assert page.evaluate("location.hash") == place


def test_text_that_was_searched_for_is_marked(page: sync_api.Page, served: Served) -> None:
    go(page, served, "run/wrong/find?text=characters of&purpose=train")
    grid = page.get_by_role("grid", name="Trajectories")
    grid.get_by_text("I read", exact=False).first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_text("What the judge said").first.wait_for()
    assert page.evaluate("CSS.highlights.get('found').size") == 1


def test_tokens_are_coloured_and_a_link_shows_the_same_place(
    page: sync_api.Page, served: Served, browser: sync_api.Browser, runs: Path
) -> None:
    rows = [row for row in load_run(runs / "wrong").index("train") if row.get("fate") == "kept" and row["spread"] > 0]
    place = "run/wrong/train/{step}/{group}/{sibling}".format(**rows[0])
    go(page, served, f"{place}?as=tokens")
    page.locator("[data-token]").first.wait_for()
    shown = page.locator("[data-token]").count()
    page.get_by_label("Colour").select_option("gap")
    address = page.evaluate("location.href")
    assert "color=gap" in address
    page.keyboard.press("n")
    page.locator(".token-card").get_by_text("advantage").wait_for()
    other = browser.new_context().new_page()
    assert other.goto(address.split("#")[0]).status == 403  # an address without the token
    other.goto(served.address)
    other.goto(address)
    other.locator("[data-token]").first.wait_for()
    assert other.get_by_label("Colour").input_value() == "gap"
    assert other.locator("[data-token]").count() == shown
    other.context.close()


def test_worst_episode_of_a_robot_is_found_and_played(page: sync_api.Page, served: Served) -> None:
    go(page, served, "run/arms/find?sort=reward&purpose=evaluation")
    worst = page.get_by_role("grid", name="Trajectories").get_by_role("link").first
    assert worst.get_attribute("href") == "#/run/arms/evaluation/3/0/0"
    picture = page.get_by_role("grid", name="Trajectories").locator(".thumbnail img").first
    sync_api.expect(picture).to_have_js_property("naturalWidth", 48)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    film = page.get_by_alt_text("Decision 0")
    sync_api.expect(film).to_have_js_property("naturalWidth", 48)
    page.get_by_role("slider").first.focus()
    page.keyboard.press("ArrowRight")
    page.get_by_alt_text("Decision 1").wait_for()


def test_two_evaluations_are_compared_task_by_task(page: sync_api.Page, served: Served) -> None:
    go(page, served, "run/wrong/compare?a=0&b=3")
    page.get_by_text("wrong → right").first.wait_for()
    tasks = page.get_by_role("grid", name="Tasks").get_by_role("gridcell", name="evaluation:")
    filters = page.get_by_role("button", name="show the tasks that are")
    for change in filters.all():
        change.click()
        sync_api.expect(tasks).to_have_count(int(change.inner_text()))
        change.click()


def test_name_of_a_column_is_inserted_into_the_condition(page: sync_api.Page, served: Served) -> None:
    go(page, served, "run/wrong/find")
    condition = page.get_by_label("Condition")
    condition.fill(" > 0")
    condition.press("Home")
    page.get_by_text("Names of columns").click()
    page.get_by_role("button", name="tools/calculator").click()
    sync_api.expect(condition).to_have_value('metrics["tools/calculator"] > 0')
    condition.press("Enter")
    page.get_by_role("columnheader", name="tools/calculator").wait_for()
    condition.fill("tool_errors = 0")
    condition.press("Enter")
    sync_api.expect(page.get_by_role("alert")).to_contain_text("no condition")
    assert "--" not in page.get_by_role("alert").inner_text()
    page.get_by_role("button", name="tool_errors").wait_for()
    condition.fill('why == "equal"')
    condition.press("Enter")
    page.get_by_role("gridcell", name="equal", exact=True).first.wait_for()


def test_extreme_token_of_a_step_is_a_link_to_its_place(page: sync_api.Page, served: Served) -> None:
    go(page, served, "run/wrong/train/2")
    page.get_by_text("highest ratio").get_by_role("link").click()
    page.locator(".token-card").get_by_text("ratio", exact=True).wait_for()
    assert page.get_by_label("Colour").input_value() == "ratio"


def test_keys_go_back_over_the_groups_of_a_step(page: sync_api.Page, served: Served) -> None:
    go(page, served, "run/wrong/train/1/1/0")
    page.get_by_text("Facts", exact=True).wait_for()
    page.keyboard.press("[")
    page.get_by_role("heading", name="Sibling 3").wait_for()
    assert page.evaluate("location.hash") == "#/run/wrong/train/1/0/3"


def test_runs_are_selected_by_keys_and_compared(page: sync_api.Page, served: Served) -> None:
    page.goto(served.address)
    page.get_by_role("grid", name="Runs").focus()
    for key in ("j", " ", "j", " "):
        page.keyboard.press(key)
    page.get_by_role("heading", name="Differences of the configuration").wait_for()
    assert page.evaluate("location.hash").count("%2C") == 1


def test_page_follows_a_run_without_losing_its_place(page: sync_api.Page, runs: Path, tmp_path: Path) -> None:
    whole, growing = runs / "wrong", tmp_path / "growing"
    later = shutil.ignore_patterns("*-000003*", "checkpoints")
    shutil.copytree(whole, growing, ignore=later, symlinks=True)
    lines = (whole / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    before = [line for line in lines if json.loads(line)["step"] < 3]
    (growing / "metrics.jsonl").write_text("".join(before), encoding="utf-8")
    server = Served(growing)
    try:
        go(page, server, "run/growing")
        page.get_by_text("2 of 3", exact=True).wait_for()
        sync_api.expect(page.locator(".loading")).to_have_count(0)
        page.evaluate("scrollTo(0, 400)")
        curve = page.locator(".curve").first
        place = curve.bounding_box()
        with (growing / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(lines[len(before) :])
        for path in whole.rglob("*-000003*"):
            if path.is_file():
                shutil.copy(path, growing / path.relative_to(whole))
        page.get_by_text("3 of 3", exact=True).wait_for(timeout=15_000)
        sync_api.expect(page.get_by_role("status").filter(has_text="step 3 of 3")).to_have_count(1)
        assert curve.bounding_box() == place  # although what is above it can change its height
        shutil.rmtree(growing)  # a run that is deleted while it is shown
        page.goto(server.at("run/growing/train/2"))
        page.get_by_text("growing").first.wait_for()
    finally:
        server.close()


def test_run_that_begins_appears_in_the_list(page: sync_api.Page, runs: Path, tmp_path: Path) -> None:
    leave = shutil.ignore_patterns("checkpoints")
    shutil.copytree(runs / "wrong", tmp_path / "earlier", ignore=leave, symlinks=True)
    server = Served(tmp_path)
    try:
        page.goto(server.address)
        page.get_by_role("link", name="earlier").first.wait_for()
        shutil.copytree(runs / "wrong", tmp_path / "later", ignore=leave, symlinks=True)
        page.get_by_role("link", name="later").first.wait_for(timeout=15_000)
    finally:
        server.close()


def test_focus_follows_into_the_next_view(page: sync_api.Page, served: Served) -> None:
    page.goto(served.address)
    page.get_by_role("link", name="wrong", exact=True).first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Curves").wait_for()
    sync_api.expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("Tab")
    sync_api.expect(page.get_by_role("main").get_by_role("link", name="Runs")).to_be_focused()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script that finds violations of the guidelines for accessibility."""
    page = installed_page(tmp_path_factory.mktemp("npm"))
    return (page / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


VIEWS = (
    *("", "?runs=arms%2Cwrong", "run/wrong", "run/wrong/find?text=characters of", "run/wrong/compare?a=0&b=3"),
    *("run/wrong/train/1", "run/wrong/train/1/0", "run/wrong/train/1/0/0", "run/wrong/train/1/0/0?as=tokens"),
    *("run/arms/evaluation/3", "run/arms/evaluation/3/0", "run/arms/evaluation/3/0/0", "run/arms/find", "nothing"),
)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_views_are_accessible_and_fit_the_screen(
    page: sync_api.Page, served: Served, axe: str, theme: str, width: int
) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 720})
    page.goto(served.address)
    for view in VIEWS:
        page.goto(served.at(view))
        sync_api.expect(page.locator(".loading")).to_have_count(0)
        sync_api.expect(page.get_by_role("heading", level=1)).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        page.evaluate(axe)  # the policy of the page forbids a script element
        found = page.evaluate("axe.run()")["violations"]
        assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found] == [], view


PAYLOADS = (
    "<script>hacked()</script>",
    "<img src=x onerror=hacked()>",
    "<svg/onload=hacked()>",
    '"><iframe srcdoc="<script>parent.hacked()</script>">',
    "</script><script>hacked()</script>",
    "<!--<script>hacked()//",
    "javascript:hacked()",
    "data:text/html,<script>hacked()</script>",
    "[x](javascript:hacked())",
    "{{constructor.constructor('hacked()')()}}",
    "${hacked()}",
    "'-hacked()-'",
    "<style>*{background:url(//evil.example/x)}</style>",
    "<a href=//evil.example onmouseover=hacked()>x</a>",
    "\u202egnp.exe\u2066<b>",
    "\x1b]8;;http://evil.example\x07x\x1b]8;;\x07\x00\x7f",
    "</pre></div></body><script>hacked()</script>",
    "&lt;script&gt;hacked()&lt;/script&gt;",
    "<math><mtext><table><mglyph><style><img src=x onerror=hacked()>",
    "<base href=//evil.example><form action=//evil.example><button autofocus onfocus=hacked()>",
)
FIELDS = ("task", "answer", "user", "assistant", "tool", "argument", "reward", "component", "error", "said")


def hostile_group(number: int, text: str) -> Group:
    """A group with a hostile text in every field that has one."""
    parts = {name: f"{text} {name} {number}" for name in FIELDS}
    call = ToolCall(name=parts["tool"], arguments={parts["argument"]: parts["argument"], "code": parts["said"]})
    messages = (
        Message(role="user", content=parts["user"]),
        Message(role="assistant", content=f"<think>{parts['assistant']}</think>{text}", tool_calls=(call,)),
        Message(role="tool", name=parts["tool"], content=parts["tool"]),
        Message(role="assistant", content=parts["assistant"]),
    )
    judged = RewardResult(value=0.0, components={parts["component"]: 0.5}, text=parts["said"])
    failed = RewardResult(value=None, error=parts["error"])
    task = Task(id=parts["task"], messages=messages[:1], fields={"answer": parts["answer"], parts["answer"]: text})
    one = make_trajectory(*messages, task_id=task.id).replace(
        rewards={parts["reward"]: judged, f"{text} failed": failed}, reward=0.0, metrics={parts["reward"]: 1.0}
    )
    return Group(task=task, trajectories=(one, one.replace(sibling=1, reward=None)))


@pytest.fixture(scope="module")
def hostile(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with 200 hostile texts: each of the payloads in each of the fields."""
    folder = tmp_path_factory.mktemp("hostile") / "<img src=x onerror=hacked()>"
    shutil.copytree(runs / "wrong", folder, symlinks=True, ignore=shutil.ignore_patterns("checkpoints", "superseded"))
    groups = [hostile_group(number, text) for number, text in enumerate(PAYLOADS)]
    write_record(folder / "rollouts" / "train-000004.jsonl.gz", groups)
    row = {"step": 4, "time": 0.0, **{f"{text}/mean": 1.0 for text in PAYLOADS}}
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    (folder / "output.log").write_text(f"error: {PAYLOADS[0]}\n  found    {PAYLOADS[1]}\n", encoding="utf-8")
    config = (folder / "config.toml").read_text(encoding="utf-8")
    (folder / "config.toml").write_text(
        config.replace('"builtin:tiny-qwen2"', json.dumps(PAYLOADS[3])), encoding="utf-8"
    )
    return folder


def places_of(run: str) -> list[str]:
    """The addresses of all views of the hostile run."""
    name = f"run/{run}"
    groups = [f"{name}/train/4/{number}" for number in range(len(PAYLOADS))]
    return ["", f"?runs={run}", name, f"{name}/train/4", f"{name}/find", *groups, *(f"{one}/0" for one in groups)]


def visit(page: sync_api.Page, start: str, places: list[str]) -> str:
    """Open places, and return all that they show."""
    page.expose_function("hacked", lambda: page.evaluate("throw new Error('a hostile text was executed')"))
    page.goto(start)
    shown = []
    for place in places:
        page.goto(f"{start.split('?')[0]}#/{place}")
        sync_api.expect(page.locator(".loading")).to_have_count(0)
        sync_api.expect(page.locator("main")).to_contain_text(re.compile(".{20}"))
        shown.append(page.locator("main").inner_text())
        assert page.locator("img[src=x], iframe, script:not([src]):not(#rlcore-report), [onerror], base").count() <= 1
        assert page.locator("a:not([href^='#'])").count() == 0
    return "\n".join(shown)


def test_hostile_texts_are_shown_and_never_executed(page: sync_api.Page, hostile: Path) -> None:
    server = Served(hostile)
    try:
        shown = visit(page, server.address, places_of("%3Cimg%20src%3Dx%20onerror%3Dhacked()%3E"))
    finally:
        server.close()
    assert "<script>hacked()</script> user 0" in shown
    assert "\u202e" not in shown
    assert "\\u202egnp.exe" in shown


def test_report_works_without_a_server_and_reads_without_scripts(
    page: sync_api.Page, browser: sync_api.Browser, hostile: Path, runs: Path, tmp_path: Path
) -> None:
    for run in (runs / "wrong", hostile):
        done = rlcore_command(["report", str(run), "--out", "report.html"], tmp_path)
        assert done.returncode == 0, done.stderr
        page.goto((tmp_path / "report.html").as_uri())
        page.get_by_role("heading", name="Curves").wait_for()
        kept = page.get_by_role("grid", name="Trajectories").get_by_role("link")
        kept.first.wait_for()
        places = [str(kept.nth(number).get_attribute("href")) for number in range(kept.count())]
        assert len(places) == 12
        for place in places[:4]:
            page.goto(f"{(tmp_path / 'report.html').as_uri()}{place}?as=tokens")
            page.locator("[data-token]").first.wait_for()
        assert page.locator("img[src=x], iframe, [onerror]").count() == 0
        plain = browser.new_context(java_script_enabled=False).new_page()
        plain.goto((tmp_path / "report.html").as_uri())
        text = plain.locator("main").inner_text()
        plain.context.close()
        assert "Metrics" in text
        assert "Trajectories" in text
        assert "user" in text
