"""Solutions of some pages, from the instruction and the elements of the first screen.

They show that these pages can be solved with the actions and observations of this plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rlcore.errors import DataError
from rlcore_gui.actions import Action

from rl_plugin_miniwob.actions import CLICK, SELECT, TYPE
from rl_plugin_miniwob.page import Element

Shown = Sequence[Element]
Oracle = Callable[[str, Shown], list[Action]]
FIELDS = frozenset({"text", "password", "textarea"})


def solution(page: str, task: str, elements: Shown) -> list[Action]:
    """The actions that solve a page.

    Raises:
        DataError: the solution of this page is not known, or an element is covered by others.
    """
    if page not in ORACLES:
        raise DataError(f"no solution of the page {page!r} is known", fix=f"use one of {', '.join(ORACLES)}")
    return ORACLES[page](task, elements)


def _click(element: Element) -> Action:
    return Action(name=CLICK, position=element.position)


def _type(element: Element, text: str) -> Action:
    return Action(name=TYPE, value=text, position=element.position)


def _named(elements: Shown, text: str, kind: str | None = None) -> Element:
    for one in elements:
        if one.text == text and kind in {None, one.kind}:
            return one
    raise DataError(f"the page does not show the element {text!r}", fix="use another seed")


def _of_kind(elements: Shown, *kinds: str) -> list[Element]:
    return [one for one in elements if one.kind in kinds]


def _quoted(task: str) -> list[str]:
    return re.findall(r'"([^"]*)"', task)


def _click_quoted(task: str, elements: Shown) -> list[Action]:
    return [_click(_named(elements, _quoted(task)[0]))]


def _click_quoted_button(task: str, elements: Shown) -> list[Action]:
    return [_click(_named(elements, _quoted(task)[0], "button"))]


def _click_named_button(task: str, elements: Shown) -> list[Action]:
    """The buttons whose names are in capitals, in the order of the instruction."""
    return [_click(_named(elements, name, "button")) for name in re.findall(r"\b(ONE|TWO)\b", task)]


def _click_only_button(task: str, elements: Shown) -> list[Action]:
    return [_click(_of_kind(elements, "button")[0])]


def _click_ordinal_field(task: str, elements: Shown) -> list[Action]:
    found = re.search(r"(\d+)(?:st|nd|rd|th)", task)
    return [_click(_of_kind(elements, *FIELDS)[int(found[1]) - 1 if found else 0])]


def _click_tab(task: str, elements: Shown) -> list[Action]:
    return [_click(_named(elements, f"Tab #{task.rstrip('.')[-1]}"))]


def _click_in_dialog(task: str, elements: Shown) -> list[Action]:
    """The pages call the button that closes a dialog "x"."""
    label = _quoted(task)[0]
    return [_click(_named(elements, "Close" if label == "x" else label, "button"))]


def _fill(task: str, elements: Shown) -> list[Action]:
    """Type the quoted texts into the fields, the last one into all that are left, and press the only button."""
    texts, fields = _quoted(task), _of_kind(elements, *FIELDS)
    texts += texts[-1:] * (len(fields) - len(texts))
    typed = [_type(field, text) for field, text in zip(fields, texts, strict=True)]
    return [*typed, _click(_of_kind(elements, "button")[-1])]


def _enter_in_case(task: str, elements: Shown) -> list[Action]:
    text = _quoted(task)[0]
    wanted = text.upper() if "upper case" in task else text.lower()
    return [_type(_of_kind(elements, *FIELDS)[0], wanted), _click(_of_kind(elements, "button")[-1])]


def _tick(task: str, elements: Shown) -> list[Action]:
    """Click the boxes whose labels the instruction names, and submit."""
    found = re.match(r"Select (.*) and click Submit", task)
    wanted = [] if found is None or found[1] == "nothing" else found[1].split(", ")
    labels = [one for one in elements if one.kind in {"label", "li", "div", "span"} and one.text in wanted]
    return [*map(_click, labels), _click(_of_kind(elements, "button")[-1])]


def _choose(task: str, elements: Shown) -> list[Action]:
    found = re.match(r"Select (.*) from the list and click Submit", task)
    (menu,) = _of_kind(elements, "select")
    chosen = Action(name=SELECT, value=found[1] if found else "", position=menu.position)
    return [chosen, _click(_of_kind(elements, "button")[-1])]


ORACLES: dict[str, Oracle] = {
    "choose-list": _choose,
    "click-button": _click_quoted_button,
    "click-button-sequence": _click_named_button,
    "click-checkboxes": _tick,
    "click-dialog": _click_in_dialog,
    "click-dialog-2": _click_in_dialog,
    "click-link": _click_quoted,
    "click-option": _tick,
    "click-tab": _click_tab,
    "click-test": _click_only_button,
    "click-test-2": _click_named_button,
    "enter-password": _fill,
    "enter-text": _fill,
    "enter-text-2": _enter_in_case,
    "focus-text": _click_ordinal_field,
    "focus-text-2": _click_ordinal_field,
    "login-user": _fill,
}
"""By the name of the page."""

__all__ = ["ORACLES", "solution"]
