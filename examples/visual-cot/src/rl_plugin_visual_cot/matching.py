"""Whether a short answer equals the expected one, and whether a chain of thought concludes with an answer.

Pure functions of text. Articles, punctuation, letter case, plurals and number words do not matter.
"""

from __future__ import annotations

import re
from typing import Literal

Polarity = Literal["yes", "no"]

_YES = frozenset({"yes", "yep", "yeah", "true", "correct"})
_NO = frozenset({"no", "nope", "false", "incorrect"})
_NEGATIONS = frozenset({"not", "cannot", "neither", "nor", "never", "none"})
_ARTICLES = frozenset({"a", "an", "the"})
_COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_NUMBERS = {word: str(number) for number, word in enumerate(_COUNTED.split())}
_IRREGULAR = {
    "buses": "bus",
    "people": "person",
    "men": "man",
    "women": "woman",
    "children": "child",
    "feet": "foot",
    "teeth": "tooth",
    "mice": "mouse",
    "geese": "goose",
    "knives": "knife",
    "shelves": "shelf",
    "leaves": "leaf",
    "grey": "gray",
    "colour": "color",
}
_SINGULAR_ENDINGS = ("ss", "us", "is")
_SURROUNDING = "it is are this that these they there color side shape on in to at of its he she picture image photo"
_FILLERS = frozenset(_SURROUNDING.split())
"""Words that may surround a short answer, singular as all tokens."""
_OPPOSITES = {
    "left": "right",
    "top": "bottom",
    "upper": "lower",
    "above": "below",
    "indoors": "outdoors",
    "indoor": "outdoor",
}
_OPPOSITES |= {other: one for one, other in _OPPOSITES.items()}
_QUOTED = re.compile(r'"[^"\n]*"|“[^”\n]*”')
_MARKER = re.compile(r"conclusion|final answer|therefore|the answer\b.*?\bis\b|\bthus\b|\bhence\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_CONTRACTION = re.compile(r"n['’]t\b")


def tokens(text: str) -> list[str]:
    """Return the normalised words of a text."""
    spaced = _CONTRACTION.sub(" not", text.lower().replace("can't", "cannot").replace("can’t", "cannot"))
    words = re.findall(r"\w+", spaced)
    return [_normal(word) for word in words if word not in _ARTICLES]


def matches(prediction: str, expected: str, question: str = "") -> bool:
    """Return whether a short answer is the expected one.

    - Yes or no is decided by the first decisive word; an answer that says both is wrong.
    - Other answers must contain the expected words in order. The remaining words must be fillers, such as ``it is``, or
      words of the question, unless the question offers alternatives with ``or``. An answer that lists several
      possibilities is therefore wrong.
    """
    found, wanted = tokens(prediction), tokens(expected)
    if not found or not wanted:
        return False
    if found == wanted:
        return True
    if wanted in (["yes"], ["no"]):
        return polarity(prediction) == wanted[0]
    place = _find(found, wanted)
    if place is None:
        return False
    opposites = {_OPPOSITES[word] for word in wanted if word in _OPPOSITES}
    rest = _without_denied(found[:place] + found[place + len(wanted) :], opposites)
    asked = tokens(question)
    allowed = (_FILLERS if "or" in asked else _FILLERS | set(asked)) - opposites - _YES - _NO
    return all(word in allowed for word in rest)


def polarity(text: str) -> Polarity | None:
    """Return the answer to a question of yes or no; None if the text says neither or both."""
    words = tokens(text)
    if _YES & set(words) and _NO & set(words):
        return None
    for word in words:
        if word in _YES:
            return "yes"
        if word in _NO or word in _NEGATIONS:
            return "no"
    return None


def conclusion(think: str) -> str:
    """Return the end of a chain of thought, from its last marker such as ``Therefore``, or its last sentence.

    Quotations are removed, because they repeat the question.
    """
    text = _QUOTED.sub(" ", think)
    markers = list(_MARKER.finditer(text))
    if markers:
        rest = text[markers[-1].end() :]
        if tokens(rest):
            return rest.strip(" :*#\n,")
    sentences = [sentence for sentence in _SENTENCE_END.split(text) if tokens(sentence)]
    return sentences[-1].strip() if sentences else ""


def concludes_with(think: str, answer: str) -> bool:
    """Return whether the conclusion of a chain of thought is this answer, whether or not the answer is correct.

    A sentence without a decisive word counts as yes unless it is negated.
    """
    end, wanted = conclusion(think), tokens(answer)
    found = tokens(end)
    if not found or not wanted:
        return False
    if wanted[0] in ("yes", "no") or wanted in ([word] for word in _YES | _NO):
        said = _first_polarity(end)
        return said == polarity(answer)
    if _find(found, wanted) is None:
        return False
    if len(wanted) == 1 and (opposite := _OPPOSITES.get(wanted[0])) is not None:
        both = {wanted[0], opposite}
        directions = [word for word in _without_denied(found, both) if word in both]
        return directions[:1] == wanted
    return True


def _first_polarity(text: str) -> Polarity:
    """The polarity of a sentence: its first decisive word, or else whether it is negated."""
    words = tokens(text)
    for word in words:
        if word in _YES or word in _NO:
            return "yes" if word in _YES else "no"
    return "no" if any(word in _NEGATIONS for word in words) else "yes"


def _without_denied(words: list[str], deniable: set[str]) -> list[str]:
    """The words without ``not X`` for each deniable word X."""
    kept: list[str] = []
    for word in words:
        if word in deniable and kept[-1:] in (["not"], ["nor"]):
            kept.pop()
        else:
            kept.append(word)
    return kept


def _find(words: list[str], wanted: list[str]) -> int | None:
    """The position of consecutive words that are not denied."""
    for place in range(len(words) - len(wanted) + 1):
        if words[place : place + len(wanted)] == wanted and words[place - 1 : place] not in (["not"], ["nor"]):
            return place
    return None


def _normal(word: str) -> str:
    """A word in singular, a number as digits."""
    if word in _NUMBERS:
        return _NUMBERS[word]
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) > 3 and word.endswith("s") and not word.endswith(_SINGULAR_ENDINGS):
        if word.endswith("ies") and len(word) > 4:
            return word[:-3] + "y"
        if word.endswith(("ches", "shes", "xes", "sses", "zes")):
            return word[:-2]
        return word[:-1]
    return word


__all__ = ["concludes_with", "conclusion", "matches", "polarity", "tokens"]
