"""Search by conditions and texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.errors import UserError
from rlcore.rollouts.conditions import Where
from rlcore.rollouts.texts import may_contain_of
from rlcore.rollouts.writing import write_record
from rlcore.testing import make_trajectory
from rlcore.types import Group, Task
from rlcore_view.find import in_condition

Ask = Callable[..., Any]


def places(found: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(row["step"], row["group"], row["sibling"]) for row in found["rows"]]


def test_conditions_select_and_sort(ask: Ask) -> None:
    found = ask("runs/first/find", where="reward == 1", purpose="train", sort="-tool_errors")
    assert (found["total"], found["searched"]) == (5, 10)
    assert places(found)[:3] == [(1, 0, 1), (1, 2, 1), (2, 0, 0)]
    assert {"reward", "tool_errors", "math"} <= set(found["columns"])
    limited = ask("runs/first/find", where="reward == 1", purpose="train", sort="tokens", limit="2")
    assert (limited["total"], len(limited["rows"])) == (5, 2)
    assert places(ask("runs/first/find", where="reward is None", sort="reward", purpose="train"))[0] == (1, 2, 0)
    assert places(ask("runs/first/find", sort="-reward", purpose="train", steps="1"))[-1] == (1, 2, 0)  # not scored
    assert places(ask("runs/first/find", task="b", steps="1-3")) == [(1, 1, 0), (1, 1, 1)]


@pytest.mark.parametrize("text", ["", "quicksilver"])
def test_carried_group_is_found_once_where_it_was_sampled(ask: Ask, text: str) -> None:
    for where in ("staleness > 0", "trained_step > step", 'fate == "carried"', 'fate == "kept" and group == 2'):
        found = ask("runs/first/find", where=where, text=text)
        assert (places(found), found["searched"]) == ([(1, 2, 0), (1, 2, 1)], 14), where
        assert [(row["fate"], row["trained_step"]) for row in found["rows"]] == [("carried", 2)] * 2
    (row, _) = ask("runs/first/find", where="staleness > 0", steps="2", text=text)["rows"]
    assert (row["step"], row["fate"], row["trained_step"]) == (1, "kept", 2)


@pytest.mark.parametrize(
    "name", ["tool_errors", "tools/calculator", "rewards.py:Parity", "class", 'a "b"', "\\\n", "错误"]
)
def test_names_are_written_as_conditions_accept_them(name: str) -> None:
    assert Where.parse(f"{in_condition('metrics', name)} == 1")({"metrics": {name: 1}})


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("QuickSilver", 2),
        ("STRASSE", 2),
        ("你好", 7),
        ("print(6 * 7)", 7),
        ('"digits": 2', 7),
        ("JUDGE said", 7),
        ("42", 5),
        ("<script>", 7),
        ("end", 7),
        ("calculator", 7),
        ("token_ids", 0),
        ("no such text", 0),
    ],
)
def test_texts_are_found_in_messages_calls_and_judgements(ask: Ask, text: str, total: int) -> None:
    found = ask("runs/first/find", text=text, purpose="train", steps="1-2")
    assert (found["total"], found["searched"]) == (total, 7)
    assert all(text.casefold() in row["match"].casefold() for row in found["rows"])


def test_match_is_cut_around_the_text(run: Path, ask: Ask) -> None:
    said = make_trajectory(f"{'a' * 900} rare {'b' * 900}")
    group = Group(task=Task(id=said.task_id, messages=()), trajectories=(said,))
    write_record(run / "rollouts" / "train-000008.jsonl.gz", [group])
    (row,) = ask("runs/first/find", text="RARE")["rows"]
    assert row["match"] == f"…{'a' * 59} rare {'b' * 59}…"


def test_search_for_a_common_text_ends_when_there_are_enough_rows(ask: Ask) -> None:
    found = ask("runs/first/find", text="answer", purpose="train", limit="2")
    assert (found["more"], len(found["rows"])) == (True, 2)
    assert places(found) == places(ask("runs/first/find", text="answer", purpose="train"))[:2]


@pytest.mark.parametrize("sort", ["-step", "reward", "-reward", "task"])
def test_search_in_an_order_finds_the_first_rows_of_it(ask: Ask, sort: str) -> None:
    whole = ask("runs/first/find", text="answer", purpose="train", sort=sort)
    assert (whole["total"], whole["more"], whole["searched"]) == (7, False, 10)
    ordered = [place for place in places(ask("runs/first/find", purpose="train", sort=sort)) if place in places(whole)]
    assert places(whole) == ordered
    first = ask("runs/first/find", text="answer", purpose="train", sort=sort, limit="2")
    assert (first["more"], places(first)) == (True, places(whole)[:2])
    assert all("answer" in row["match"] for row in first["rows"])


def test_text_and_condition_hold_together_also_in_progress(ask: Ask) -> None:
    found = ask("runs/first/find", text="answer", where="reward == 1 and step == 4")
    assert places(found) == [(4, 0, 0)]


def test_condition_on_what_only_later_siblings_have_holds_with_a_text(run: Path, ask: Ask) -> None:
    said = make_trajectory("a rare answer")
    group = Group(
        task=Task(id=said.task_id, messages=()), trajectories=(said, said.replace(sibling=1, metrics={"late": 1.0}))
    )
    write_record(run / "rollouts" / "train-000008.jsonl.gz", [group])
    assert places(ask("runs/first/find", text="rare", where="late == 1")) == [(8, 0, 1)]
    with pytest.raises(UserError, match="there is no column"):
        ask("runs/first/find", text="rare", where="never == 1")


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ("strasse", "Die STRASSE"),
        ("strasse", "Die Straße"),
        ("kelvin", "300 \u212aelvin"),
        ('say "hi"', r"I say \"hi\""),
        ("错误", "一个错误"),
        ("错误", r"\u9519\u8bef"),
        ("привет", "ПРИВЕТ"),
        ("привет", r"\"Привет\" — ПРИВЕТ"),
        ("a\nb", r"a\nb"),
    ],
)
def test_fast_test_of_a_line_misses_nothing(wanted: str, line: str) -> None:
    assert may_contain_of(wanted.casefold())(line.encode())


def test_fast_test_rejects_most_lines() -> None:
    assert not may_contain_of("quicksilver")("a line without it, but with ü".encode())
    assert not may_contain_of("错误")("a line without it 你好".encode())
    assert not may_contain_of("привет")("строка".encode())


@pytest.mark.parametrize(
    "query",
    [
        {"where": "reward = 1"},
        {"where": "__import__('os')"},
        {"where": "no_such_column == 1"},
        {"steps": "one"},
        {"purpose": "test"},
        {"limit": "-1"},
        {"text": "x" * 1001},
    ],
)
def test_bad_queries_are_errors_of_the_user(ask: Ask, query: dict[str, str]) -> None:
    with pytest.raises(UserError) as error:
        ask("runs/first/find", **query)
    assert type(error.value) is UserError
    assert "--" not in str(error.value)


def test_run_without_rollouts_has_nothing_to_find(run: Path, ask: Ask) -> None:
    for folder in ("rollouts", "evidence"):
        for path in (run / folder).iterdir():
            path.unlink()
    assert ask("runs/first/find", where="reward == 1")["total"] == 0
