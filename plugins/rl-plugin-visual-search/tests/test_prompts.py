"""The messages of questions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

import pytest
from rl_plugin_visual_search.grammar import parse
from rl_plugin_visual_search.prompts import MODULES, Coordinates, Tools, opening, own_opening
from rlcore.types import ImagePart, Message, media_hash
from solid_pictures import picture

FIRST, SECOND = picture(400, 300), picture(100, 50, (1, 2, 3))
QUESTION = "What is ${HOME} at $question in {this}?"


def shown(message: Message) -> str:
    """The text of a message, with the beginnings of the hashes of its pictures."""
    assert not isinstance(message.content, str)
    return "".join(f"[{part.sha256[:6]}]" if isinstance(part, ImagePart) else part.text for part in message.content)


def test_guided_prompt_names_the_pictures_and_states_everything_in_order() -> None:
    (message,) = opening(QUESTION, [FIRST, SECOND])
    text = shown(message)
    parts = [
        f"<image_clue_0>[{media_hash(FIRST)[:6]}]</image_clue_0>",
        f"<image_clue_1>[{media_hash(SECOND)[:6]}]</image_clue_1>",
        "step by step",
        "Python code",
        "sandbox",
        "`image_clue_i`, a PIL image",
        "MUST use code",
        "zoom in, rotate",
        "`plt.show()`",
        "no need to save",
        "`print()`",
        "<interpreter>",
        "complete with its imports",
        "<code>\n```python\n",
        "<answer>\n\\boxed{'your answer'}\n</answer>",
        "image_clue_0: width 400, height 300\nimage_clue_1: width 100, height 50",
        f"Question:\n{QUESTION}",
        "<answer>\n\\boxed{'your answer'}\n</answer>",
    ]
    places = []
    for part in parts:
        places.append(text.index(part, places[-1] if places else 0))
    assert text.endswith("</answer>")
    assert message.role == "user"


def test_prompt_does_not_contradict_itself_or_the_sandbox() -> None:
    text = shown(opening(QUESTION, [FIRST])[0])
    assert not re.search(r"(not|n't) use[^.]*PIL", text)
    assert "remain for your next code" in text


@pytest.mark.parametrize(
    ("importable", "sentence"),
    [
        (None, "The network is not available."),
        ([], "numpy, PIL, matplotlib, cv2, scipy, skimage and the network are not available."),
        (["PIL"], "PIL is available, numpy, matplotlib, cv2, scipy, skimage and the network are not."),
        (["cv2", "PIL"], "PIL and cv2 are available, numpy, matplotlib, scipy, skimage and the network are not."),
        (list(MODULES), "numpy, PIL, matplotlib, cv2, scipy and skimage are available, the network is not."),
    ],
)
def test_prompt_states_what_code_can_import(importable: Sequence[str] | None, sentence: str) -> None:
    text = shown(opening(QUESTION, [FIRST], importable=importable)[0])
    assert f" {sentence} Use `print()`" in text


def test_form_that_the_prompt_shows_is_an_action() -> None:
    text = shown(opening(QUESTION, [FIRST])[0])
    form = text[text.index("<code>") : text.index("</code>") + len("</code>")]
    assert parse(form).code == "your code"
    assert parse(text[text.rindex("<answer>") :]).answer == "your answer"
    assert parse(form).well_formed


@pytest.mark.parametrize("tools", get_args(Tools))
def test_each_tool_set_has_its_own_instructions(tools: Tools) -> None:
    text = shown(opening(QUESTION, [FIRST], tools=tools)[0])
    assert ("<code>" in text, "image_zoom_in_tool" in text) == (tools == "code", tools == "zoom")
    assert QUESTION in text
    assert text.count("\\boxed{'your answer'}") == 2


@pytest.mark.parametrize("coordinates", get_args(Coordinates))
def test_prompt_states_the_space_of_coordinates(coordinates: Coordinates) -> None:
    assert coordinates in shown(opening(QUESTION, [FIRST], tools="zoom", coordinates=coordinates)[0])


def test_agent_prompt_asks_for_plans_and_plain_prompt_for_nothing() -> None:
    guided, agent = (shown(opening(QUESTION, [FIRST], style=style)[0]) for style in ("guided", "agent"))
    assert agent.startswith(guided[: guided.index("\n")])
    assert "Plan in detail" in agent
    assert agent.endswith(guided[guided.index("Solve") :])
    assert shown(opening("Where?", [FIRST], style="plain")[0]) == f"[{media_hash(FIRST)[:6]}]Where?"


def test_options_of_a_multiple_choice_are_lettered() -> None:
    assert shown(opening("Which?", [FIRST], options=["red", "blue"])[0]).count("Which?\nA. red\nB. blue") == 1


def test_prompt_of_a_row_has_its_pictures_at_their_marks() -> None:
    prompt = (("system", "Look."), ("user", "First <image> then <image>. Which?"))
    system, user = own_opening(prompt, [FIRST, SECOND])
    assert (system.role, shown(system)) == ("system", "Look.")
    first, second = media_hash(FIRST)[:6], media_hash(SECOND)[:6]
    assert shown(user) == (
        f"First <image_clue_0>[{first}]</image_clue_0> then <image_clue_1>[{second}]</image_clue_1>. Which?"
    )


def test_pictures_without_a_mark_precede_the_text_of_a_user() -> None:
    first, second = media_hash(FIRST)[:6], media_hash(SECOND)[:6]
    _, user = own_opening((("system", "Look."), ("user", "At <image>?")), [FIRST, SECOND])
    assert shown(user) == f"<image_clue_0>[{first}]</image_clue_0>At <image_clue_1>[{second}]</image_clue_1>?"
    (user,) = own_opening((("user", "<image> and <image>"),), [FIRST])
    assert shown(user) == f"<image_clue_0>[{first}]</image_clue_0> and <image>"
