"""Short answers, the conclusions of chains of thought, and the format."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_plugin_visual_cot.grammar import parse
from rl_plugin_visual_cot.matching import concludes_with, conclusion, matches, polarity
from rl_plugin_visual_cot.prompts import answered

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
ANSWERS = ("yes", "no", "left", "right", "top", "light brown", "dog", "glasses", "two", "Bed", "indoors")
WORDS = "yes no not left right the a is it Red dogs or, . and bus 2 two on isn't <answer>"
TEXTS = st.lists(st.sampled_from(WORDS.split(" "))).map(" ".join)


@pytest.mark.parametrize(
    ("prediction", "expected", "right"),
    [
        ("No, there are not any cars", "Yes", False),
        ("Yes, it is not red", "No", False),
        ("is", "Yes", False),
        ("yes", "Yes", True),
        ("It is light brown", "light brown", True),
        ("on the right, not the left", "Left", False),
        ("dogs", "dog", True),
        ("", "No", False),
        ("No, there are not any cars", "No", True),
        ("There is nothing left", "No", False),
        ("Yes and no", "Yes", False),
        ("No, it isn't", "No", True),
        ("on the right, not the left", "Right", True),
        ("left or right", "Left", False),
        ("to the right", "Right", True),
        ("brown light", "light brown", False),
        ("red, green, blue", "Red", False),
        ("not red", "Red", False),
        ("The grey one", "Gray", False),
        ("grey", "Gray", True),
        ("2", "Two", True),
        ("a bus", "buses", True),
        ("women", "Woman", True),
        ("Cabinets.", "cabinet", True),
        ("the", "the", False),
    ],
)
def test_short_answers(prediction: str, expected: str, right: bool) -> None:
    assert matches(prediction, expected) is right


def test_question_words_may_surround_an_answer_unless_they_are_alternatives() -> None:
    assert matches("The dog is brown", "Brown", "What color is the dog?")
    assert not matches("The dog is brown", "Brown")
    assert not matches("light brown or blue", "light brown", "Is the sofa light brown or blue?")
    assert not matches("light brown blue", "light brown", "Is the sofa light brown or blue?")


@given(st.sampled_from(ANSWERS), st.sampled_from(("{}", "the {}", " {}. ", "It is {}!", "**{}**")), st.booleans())
def test_letter_case_articles_and_punctuation_do_not_matter(answer: str, frame: str, upper: bool) -> None:
    text = frame.format(answer)
    assert matches(text.upper() if upper else text, answer)


@given(TEXTS)
def test_no_text_is_two_different_answers(text: str) -> None:
    for one in ANSWERS:
        for other in ANSWERS:
            assert one == other or not (matches(text, one) and matches(text, other))


@given(TEXTS)
def test_polarity_decides_answers_of_yes_and_no(text: str) -> None:
    assert [word for word in ("yes", "no") if matches(text, word)] == [said for said in (polarity(text),) if said]


@given(st.text(), st.text(), st.text())
def test_any_text_is_judged(prediction: str, expected: str, question: str) -> None:
    matches(prediction, expected, question)
    concludes_with(prediction, expected)
    parse(prediction)


@pytest.mark.parametrize(
    ("think", "answer", "leads"),
    [
        ("The dog is red.\nConclusion: the dog is blue.", "Blue", True),
        ("The dog is red.\nConclusion: the dog is blue.", "Red", False),
        ('Therefore, the answer to the question "Is it left or right?" is **right**.', "Right", True),
        ('Therefore, the answer to the question "Is it left or right?" is **right**.', "Left", False),
        ("Based on this, there are chairs.", "Yes", True),
        ("**Conclusion**: The microwave is not in the bottom of the photo.", "No", True),
        ("**Conclusion**: The microwave is not in the bottom of the photo.", "Yes", False),
        ("Conclusion: There are neither pieces nor machines.", "No", True),
        ("Final Answer: No, the fridge does not have the same color.", "No", True),
        ("The van is to the left of the car that is on the right.", "Left", True),
        ("The van is to the left of the car that is on the right.", "Right", False),
        ("", "Yes", False),
        ("SELECT(circle): top left.\nQUERY(count): two.", "Two", True),
    ],
)
def test_consistency_compares_the_conclusion_with_the_given_answer(think: str, answer: str, leads: bool) -> None:
    assert concludes_with(think, answer) is leads


def test_conclusion_is_the_end_of_the_chain_of_thought() -> None:
    assert conclusion("One. Two.\n\nThree is it.") == "Three is it."
    assert conclusion("Therefore, a. Conclusion: b.") == "b."


@given(st.sampled_from(("A dog.", "It is on the left.\nYes.")), st.sampled_from(ANSWERS))
def test_rendered_answers_are_well_formed(think: str, answer: str) -> None:
    found = parse(answered(think, answer).text)
    assert (found.think, found.answer, found.well_formed) == (think, answer, True)


@pytest.mark.parametrize(
    "text",
    [
        "<answer>Yes</answer>",
        "<think>x</think>Yes",
        "<think>x</think><answer>Yes",
        "Sure! <think>x</think><answer>Yes</answer>",
        "<think>x</think><answer>Yes</answer> Thank you.",
        "<think>x</think><answer></answer>",
        "<think>x</think><answer>No</answer><answer>Yes</answer>",
        "<think><think>x</think><answer>Yes</answer>",
        "<answer>Yes</answer><think>x</think>",
        "<think>x</think><tool_call>y</tool_call><answer>Yes</answer>",
        "<think>x <tool_call></think><answer>Yes</answer>",
    ],
)
def test_other_texts_are_not_well_formed(text: str) -> None:
    assert not parse(text).well_formed


def test_last_complete_answer_counts() -> None:
    assert parse("The <answer> tag comes last. <answer>No</answer>").answer == "No"
    assert parse("<answer>No</answer> or <answer>Yes</answer>").answer == "Yes"
    assert parse("<think>a</think><answer>Yes").answer == ""
    assert parse("<think>a</think> text <think>b</think><answer>Yes</answer><think>c</think>").think == "b"
