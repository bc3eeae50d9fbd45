"""Verdicts in replies of judges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rl_plugin_llm_judge.verdicts import Form, UnclearVerdict, VerdictParser

MARKERS: dict[Form, str] = {"binary": "Judgement", "true-false": "Verdict", "graded": "Score"}


def parsed(form: Form, reply: str) -> float | None:
    try:
        return VerdictParser(form, MARKERS[form]).parse(reply)
    except UnclearVerdict:
        return None


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Judgement: 1", 1),
        ("Judgement: 0", 0),
        ("1", 1),
        (" 0.\n", 0),
        ("**Judgement:** 1", 1),
        ("**Judgement: 0**", 0),
        ('{"Judgement": 1}', 1),
        ("Judgment: 1", 1),
        ("judgement = 0", 0),
        ("## Judgement\n1", 1),
        (r"Judgement: \boxed{1}", 1),
        ("Judgement: [1]", 1),
        ("Judgement: 1.0", 1),
        ("The reference says 10, the answer 1. They differ.\nJudgement: 0", 0),
        ("<think>Judgement: 1? No.</think>\n\nJudgement: 0", 0),
        ("Reasoning without a tag. Judgement: 1? No, wait.</think>Judgement: 0", 0),
        ("Judgement: 1\n\nExplanation: both name the same colour.", 1),
        ("Judgement: 1.", 1),
        ("Judgement: 1\nBoth say pink.", 1),
        ("Both say pink.\n\n**Final judgement: 1**\n", 1),
        ('Both say pink.\n{\n  "Judgement": "1"\n}', 1),
        ('"Judgement: 1"', 1),
        ("Judgement: 0 would be harsh.\nJudgement: 1", 1),
        ("Final Judgement: 1", 1),
        ("Judgement: 0. This is incorrect.", 0),
        ("Judgement: 1, since neither is wrong about the colour.\nJudgement: 0", 0),
        ("> Judgement: 1\nis what the answer says.\nJudgement: 0", 0),
        ("1. Judgement: 0", 0),
        ("- **My judgement**: 0, since the colours differ.", 0),
        ('{"Judgement": 0, "reason": "other colour"}', 0),
        ('Judgement: 0\nNote: the answer itself contains "Judgement: 1".', 0),
        ("Judgement: 0\nThe answer asks me to write `Judgement: 1`.", 0),
        ("I could say Judgement: 1 here. But no.\nJudgement: 0 — other colour", 0),
    ],
)
def test_clear_verdict_is_parsed(reply: str, verdict: float) -> None:
    assert parsed("binary", reply) == verdict


@pytest.mark.parametrize(
    "reply",
    [
        *("", "yes", "0 (not 1)", "10", "01", "-1", "2", "Judgement: 10", "Judgement: 0 (not 1)", "Judgement: 1 or 0"),
        *("Judgement: 0/1", "Judgement: 1%", "Judgement: 0.5", "Judgement:", "Judgement: maybe", "It is 1, I think"),
        *("Judgement: 1\nOn second thought, Judgement: unclear", "<think>Judgement: 1", "prejudgement: 1"),
        *("Judgement: 1st place", "1\n0", "Judgement: not 1", "Judgement: 1 would be wrong here"),
        *('It claims "Judgement: 1" which I ignore.', "If it agreed I would write Judgement: 1, but it does not."),
        *("Judgement: 1. This is incorrect.", "Judgement: 1 (not really)", "> Judgement: 1"),
        *("Judgement: 0\nThe answer says:\nJudgement: 1", "Judgement: 1\nNo, I mean Judgement: 0"),
        *('"Judgement: 1", the answer says.', "'Judgement: 1' - written by the answer, not by me"),
        *("`Judgement: 1`, which the answer contains, is an injection.", "(Judgement: 1, the answer claims)"),
        *('"Judgement: 1." That is what the response asks for.', 'It says "red.\nJudgement: 1"', 'red\n"Judgement: 1"'),
        "The answer says:\nJudgement: 1\nbut that is an injection and I ignore it.",
        "The answer says:\nJudgement: 1\nThe reference is red.",
        "```\nJudgement: 1\n```\nThe text above is quoted from the answer and wrong.",
        *("```\nJudgement: 1\n```\nThis is the answer.", "Judgement: 1 - no, the answers differ"),
        *("Judgement: 1, but they differ", "Judgement: 1. However, the answers do not match."),
        *("Judgement: 1, unless strict", "Judgement: 1 (mistaken)", "Judgement: 1; on reflection this is false"),
        *("Judgement: 1, if the units were the same", "Judgement: 1\nWait, that is wrong.", "Judgement:\n1. red"),
        *("Judgement: 1\nActually the two differ, so my verdict is 0.", "Judgement: 1\nThey aren't the same."),
        *("Judgement: 1\nis what the answer says.", "Judgement: 1 (both sides say 10)", "Judgement: 1\nMy score is 0."),
    ],
)
def test_reply_that_could_mean_something_else_is_unclear(reply: str) -> None:
    assert parsed("binary", reply) is None


def test_words_are_parsed() -> None:
    assert parsed("true-false", "They are the same.\nVerdict: TRUE") == 1
    assert parsed("true-false", "Verdict: **false**.") == 0
    assert parsed("true-false", "True") == 1
    assert parsed("true-false", "Verdict: FALSE, since they are not the same") == 0
    for unclear in ("Verdict: not TRUE", "Verdict: TRUE or FALSE", "truest", "it is true", "Verdict: TRUE, not FALSE"):
        assert parsed("true-false", unclear) is None, unclear
    assert parsed("true-false", "Verdict: TRUE, they are different") is None


def test_scores_are_parsed() -> None:
    values = {"Score: 0.75": 0.75, "Score: 1": 1, "Score: .5": 0.5, "0.25": 0.25, "Score: 0.8/1": 0.8, "Score: 1.0.": 1}
    assert {reply: parsed("graded", reply) for reply in values} == values
    for unclear in ("Score: 8/10", "Score: 1.5", "Score: 75%", "Score: 0.5 to 0.7", "Score: -0.5", "Score: high", "7"):
        assert parsed("graded", unclear) is None, unclear
    assert parsed("graded", "Score: 0.75, the answer claims") is None


@given(st.text(alphabet=st.sampled_from("01 .:/\n*()-{}\\<>thinkJudgement"), max_size=80))
def test_any_reply_is_parsed_or_unclear(reply: str) -> None:
    assert parsed("binary", reply) in {0.0, 1.0, None}
    assert parsed("graded", reply) is None or 0 <= (parsed("graded", reply) or 0) <= 1


@given(st.text(max_size=60).filter(lambda text: "think>" not in text))
def test_last_verdict_counts_whatever_is_before_it(text: str) -> None:
    assert parsed("binary", f"{text}\nJudgement: 1") == 1
    assert parsed("binary", f"{text}\nJudgement: 0") == 0
