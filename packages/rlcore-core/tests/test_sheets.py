"""Sheets: self-contained pages of trajectories with images, safe for any content."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pictured_groups import group, groups
from rlcore.config.layers import values_layer
from rlcore.config.resolve import resolve
from rlcore.config.resolved import Resolved
from rlcore.plugins.registry import Registry
from rlcore.report import Facts, sheet
from rlcore.report.answers import code_of, expected_answer, final_answer, parts_of
from rlcore.runs.directory import Asked, RunDirectory
from rlcore.runs.records import write_groups
from rlcore.session.plan import RunPlan
from rlcore.session.session import RunSession
from rlcore.testing import make_trajectory
from rlcore.types import Failure, Group, ImagePart, Message, RewardResult, Task, TextPart, ToolCall, media_hash

FACTS = Facts(title="Evaluation at step 10", rows=[("model", "tiny")])
HEAD = {"html", "head", "meta", "title", "style", "body", "header", "h1", "svg", "rect", "dl", "dt", "dd", "nav"}
CARD = {"main", "article", "section", "details", "summary", "figure", "figcaption", "a", "img", "ul", "li"}
TAGS = HEAD | CARD | {"h2", "h3", "h4", "input", "label", "span", "div", "p", "pre", "b", "i", "br", "code"}


class Page(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.attributes if key == name]


def with_texts(text: str) -> Group:
    """A group in which a data set, a tool, a reward and a model wrote this text everywhere."""
    (known,) = groups(1)
    picture = known.task.images[0]
    call = ToolCall(name=text, arguments={"a": text}, error=text)
    told = Message(role="tool", name=text, content=(TextPart(text=text), ImagePart.of(picture)))
    asked = Message(role="user", content=(ImagePart.of(picture), TextPart(text=text)))
    said = Message(role="assistant", content=f"<think>{text}</think>{text}", tool_calls=(call,))
    one = make_trajectory(asked, said, told, f"<answer>{text}</answer>", images=[picture]).replace(
        failure=Failure(boundary="tool", message=text),
        rewards={"judge": RewardResult(value=None, error=text), text: RewardResult(value=1.0, components={text: 1.0})},
    )
    return Group(task=Task(id=text, messages=(asked,), fields={"answer": text}, images=(picture,)), trajectories=(one,))


def test_page_shows_image_question_reasoning_answer_and_verdict() -> None:
    found = groups(30, siblings=2)
    page = Page(sheet(found, FACTS))
    first = found[0]
    assert f"data:image/png;base64,{base64.b64encode(first.task.images[0]).decode()}" in page.values("src")
    for words in ("Evaluation at step 10", "accuracy, 95 % interval", "Which colour has the largest", "Reasoning, "):
        assert words in page.text
    assert f"Expected {first.task.fields['answer']}" in page.text
    verdicts = [value for value in page.values("class") if value in ("right", "wrong", "unscored")]
    rewards = [one.reward for each in found for one in each.trajectories]
    shown = [{1.0: "right", 0.0: "wrong", None: "unscored"}[reward] for reward in rewards]
    assert verdicts == ["right", "wrong", "unscored", *shown]  # the labels of the filters come first
    assert {"right", "wrong", "unscored"} == set(shown)


def test_environments_have_their_own_accuracy_and_rewards() -> None:
    def of(name: str, value: float, count: int) -> list[Group]:
        made = []
        for each in groups(count):
            trajectories = tuple(
                one.replace(reward=value, rewards={"match": RewardResult(value=value)}, failure=None)
                for one in each.trajectories
            )
            made.append(Group(task=dataclasses.replace(each.task, environment=name), trajectories=trajectories))
        return made

    page = Page(sheet([*of("own", 0.0, 3), *of("oracle", 1.0, 1)], FACTS))
    assert [text for text in page.texts if re.fullmatch(r"\d\.\d{3}", text)] == ["0.000", "1.000"] + ["0.000"] * 2 + [
        "1.000"
    ] * 2
    assert "own: accuracy, 95 % interval 0.000" in page.text
    assert "oracle: accuracy, 95 % interval" in page.text
    assert "oracle: match1.000" in page.text
    assert "accuracy" not in "".join(Page(sheet(of("own", 1.0, 1), FACTS)).texts).partition("own:")[2]


def test_siblings_share_one_prompt_and_each_picture_once() -> None:
    (one,) = groups(1, siblings=6)
    uri = f"data:image/png;base64,{base64.b64encode(one.task.images[0]).decode()}"
    page = Page(sheet([one], FACTS))
    assert page.values("src").count(uri) == 1
    assert page.text.count("Which colour has the largest") == 1


@pytest.mark.parametrize(
    "text",
    [
        "</p></section><script>alert(1)</script><img src=x onerror=alert(1)>",
        "\"' onmouseover=alert(1) x=",
        "</style></title><!-- <![CDATA[ ]]> &lt;script&gt;",
        "\x1b[31mred\x1b[0m \x07 \x9b31m \u202e evil \u2028 \ud800 \x00",
        '<meta http-equiv="refresh" content="0;url=https://example.org"><base href=//example.org>',
        "<think>" * 50 + "</answer><answer>" * 20,
    ],
)
def test_hostile_texts_add_no_markup_and_no_control_characters(text: str) -> None:
    page, harmless = (Page(sheet([with_texts(words)], Facts(title=words))) for words in (text, "harmless"))
    assert set(page.tags) <= TAGS
    assert "script" not in page.tags
    assert {name for name, _ in page.attributes} == {name for name, _ in harmless.attributes}
    assert page.tags.count("img") == harmless.tags.count("img")
    assert not [value for value in page.values("src") if not value.startswith("data:image/")]
    assert not [value for value in page.values("href") if not value.startswith("#")]
    source = sheet([with_texts(text)], FACTS)
    assert all(character == "\n" or character.isprintable() for character in source)
    source.encode()


def test_content_security_policy_forbids_scripts_and_other_hosts() -> None:
    page = Page(sheet(groups(1), FACTS))
    (policy,) = [value for value in page.values("content") if "default-src" in value]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    (style,) = [text for text in page.texts if ":root" in text]
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in policy
    assert not page.values("style")


def test_page_is_limited_and_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(sheet([group(0)] * 500, FACTS))
    assert page.tags.count("article") == 60
    assert "440 tasks of 500 left out" in page.text
    monkeypatch.setattr("rlcore.report.pictures.MOST_BYTES", 3000)
    full = Page(sheet(groups(20), FACTS))
    assert "left out to limit the size of this page" in full.text
    assert sum(map(len, full.values("src"))) <= 3000


def test_damaged_or_missing_pictures_are_named(tmp_path: Path) -> None:
    broken, gone = b"no picture", "0" * 64
    asked = Message(role="user", content=(ImagePart.of(broken), ImagePart(sha256=gone)))
    one = make_trajectory(asked, "red", images=[broken]).replace(reward=1.0)
    page = Page(sheet([Group(task=Task(id="a", messages=(asked,)), trajectories=(one,))], FACTS))
    assert "damaged" in page.text
    assert "not stored" in page.text
    assert media_hash(broken)[:12] in page.text


def test_large_pictures_are_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.report.pictures.LARGEST_SIDE", 64)
    page = Page(sheet([group(0, side=400)], FACTS))
    assert "400 × 400" in page.text
    assert all(value.startswith("data:image/jpeg") for value in page.values("src"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("plain", [(False, "plain")]),
        ("<think>a</think>b", [(True, "a"), (False, "b")]),
        ("a</think>b", [(True, "a"), (False, "b")]),
        ("<think>cut off", [(True, "cut off")]),
        ("a<think>b</think>c<think>d</think>e", [(False, "a"), (True, "b"), (False, "c"), (True, "d"), (False, "e")]),
        ("<think>\n</think>\n\n", []),
    ],
)
def test_reasoning_is_separated(text: str, parts: list[tuple[bool, str]]) -> None:
    assert parts_of(text) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "look\n```python\nx = 1\n\nprint(x)\n```\ndone",
            [(False, "look"), (True, "x = 1\n\nprint(x)"), (False, "done")],
        ),
        ("```\na\n```\n```py\nb\n```", [(True, "a"), (True, "b")]),
        ("never\n```python\nclosed", [(False, "never\n```python\nclosed")]),
        ("inline ```x``` only", [(False, "inline ```x``` only")]),
        ("```python\n```", []),
        ("", []),
    ],
)
def test_code_is_told_from_text(text: str, parts: list[tuple[bool, str]]) -> None:
    assert code_of(text) == parts


def test_code_cannot_leave_its_block() -> None:
    hostile = "```html\n</pre><script>alert(1)</script>\n```\n<answer>1</answer>"
    page = Page(sheet([Group(task=Task(id="a", messages=()), trajectories=(make_trajectory(hostile),))], FACTS))
    assert page.tags.count("pre") == 1
    assert "script" not in page.tags


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>red?</think>\nblue", "blue"),
        ("<think><answer>red</answer></think><answer> blue </answer>", "blue"),
        ("I write <answer>red</answer>, no: <answer>blue</answer>.", "blue"),
        ("<answer>blue", "<answer>blue"),
        ("", ""),
    ],
)
def test_final_answer_is_the_last_complete_one(text: str, answer: str) -> None:
    assert final_answer(make_trajectory("first", text)) == answer


def test_expected_answer_is_a_field_of_the_task() -> None:
    assert expected_answer({"level": 2, "ground_truth": 7}) == "7"
    assert expected_answer({"answer": ["a", "b"]}) is None
    assert expected_answer({}) is None


def resolved(**values: Any) -> Resolved:
    tree = {"model": {"path": "builtin:tiny"}, "environment": {"id": "toy"}, "reward": [{"id": "exact"}], **values}
    return resolve([values_layer(tree, "values")], Registry())


def test_evaluations_with_images_are_written_and_superseded(toy: Any) -> None:
    plan = RunPlan(resolved=resolved(name="seen"))
    run = RunSession(plan, directory=RunDirectory.create(plan.resolved, Asked()))
    text = Group(task=Task(id="t", messages=()), trajectories=(make_trajectory("a"),))
    run.record(0, "evaluation", [text])
    assert not Path("runs/seen/sheets").exists()
    for step in (10, 20):
        run.record(step, "train", groups(1))
        run.record(step, "evaluation", groups(2))
    run.finished()
    folder = Path("runs/seen/sheets")
    assert sorted(path.name for path in folder.iterdir()) == ["evaluation-000010.html", "evaluation-000020.html"]
    page = Page((folder / "evaluation-000020.html").read_text(encoding="utf-8"))
    assert "Evaluation at step 20" in page.text
    assert "builtin:tiny" in page.text
    (folder / ".evaluation-000030.html.partial").touch()
    directory = RunDirectory.open(Path("runs/seen"))
    checkpoint = directory.checkpoints / "000010"
    directory.resume(plan.resolved, Asked(), checkpoint)
    directory.close()
    assert [path.name for path in folder.iterdir()] == ["evaluation-000010.html"]
    moved = Path("runs/seen/superseded/001-from-step-10/sheets/evaluation-000020.html")
    assert moved.is_file()


def test_eval_writes_a_sheet_also_for_text(rlcore: Any, toy: Any) -> None:
    done = rlcore("eval", "-p", "toy", "--sheet", "page.html")
    assert done.status == 0, done.err
    page = Page(Path("page.html").read_text(encoding="utf-8"))
    assert page.tags.count("article") == 4
    assert "toy/default" in page.text
    for wrong in ("page.txt", "gone/page.html"):
        refused = rlcore("eval", "-p", "toy", "--sheet", wrong)
        assert (refused.status, "--sheet" in refused.err) == (2, True)


def test_data_sheet_writes_a_page_of_stored_rollouts(rlcore: Any, toy: Any) -> None:
    write_groups(Path("seen.jsonl.gz"), groups(3))
    done = rlcore("data", "sheet", "seen.jsonl.gz", "--out", "page.html")
    assert done.status == 0, done.err
    assert "3 tasks" in done.out
    assert Page(Path("page.html").read_text(encoding="utf-8")).tags.count("article") == 3
    assert rlcore("run", "-p", "toy", "name=first").status == 0
    assert rlcore("data", "sheet", "runs/first", "--out", "run.html").status == 0
    assert "Train at step 3" in Page(Path("run.html").read_text(encoding="utf-8")).text


@pytest.mark.parametrize("arguments", [["gone.jsonl.gz", "--out", "p.html"], ["rows.jsonl", "--out", "p.html"]])
def test_data_sheet_reports_files_that_are_not_rollouts(arguments: list[str], rlcore: Any, toy: Any) -> None:
    Path("rows.jsonl").write_text(json.dumps({"messages": []}) + "\n", encoding="utf-8")
    done = rlcore("data", "sheet", *arguments)
    assert (done.status, "Traceback" in done.err) == (2, False)
    assert not Path("p.html").exists()
