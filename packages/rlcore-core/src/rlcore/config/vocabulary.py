"""The words of another system, read as ours: every word is honoured, answered or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlcore.config.layers import SHORT_FORMS, KeyPath, Layer, parse_value
from rlcore.config.messages import Problem, nearest_key
from rlcore.config.schema import RunConfig
from rlcore.config.secrets import mask_arguments
from rlcore.config.write import toml_value

Words = Mapping[str, Any]
"""The foreign keys of a command line or a file and their values: what a key means may depend on its neighbours."""


class Refused(Exception):
    """A value asks for what rlcore does not have; the text says what, and what comes nearest.

    Args:
        reason: the text
        of: the key that is wrong, where it is another than the one that is read; all that asks about it is told once
    """

    def __init__(self, reason: str, *, of: str | None = None) -> None:
        self.of = of
        super().__init__(reason)


class Several(dict[str, Any]):
    """What `Meaning.read` returns for a word that sets other keys of ours than its one, by dotted key; or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a foreign key is here."""

    ours: str | None
    """The dotted key that it sets; None when no key of a run corresponds to it."""
    why: str = ""
    """What a person should know about it; needed where it sets nothing."""
    read: Callable[[Any, Words], Any] = lambda value, words: value
    """Our value of its value, or `Several`; raises `Refused`."""
    also: Mapping[str, Any] = field(default_factory=dict)
    """Dotted keys that the word decides besides, whatever its value."""


def nothing(why: str, *, only: tuple[Any, ...] | None = None, otherwise: str = "") -> Meaning:
    """A key that sets nothing, whichever its value, or as long as it is one of ``only``."""

    def read(value: Any, words: Words) -> None:
        if only is not None and value not in only:
            raise Refused(otherwise)

    return Meaning(ours=None, why=why, read=read)


def never(reason: str) -> Meaning:
    """A key that is refused, whichever its value."""

    def read(value: Any, words: Words) -> None:
        raise Refused(reason)

    return Meaning(ours=None, why=f"refused: {reason}", read=read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The keys of one other system, by their full names."""

    name: str
    meanings: Mapping[str, Meaning]

    @property
    def tables(self) -> set[str]:
        """The top-level names that are this system's alone: no table of a run's, nor of a trainer of ours."""
        return {key.partition(".")[0] for key in self.meanings} - set(RunConfig.model_fields) - {"critic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVocabulary(Vocabulary):
    """The keys of one kind of file of another system."""

    block: str = ""
    """The table at the top that holds all others; empty for a file without one. It is a word itself."""
    also_within: str = ""
    """A table whose keys may as well stand outside of it."""
    paths: frozenset[str] = frozenset()
    """Keys whose values are files or folders, relative to the file that names them."""
    models: frozenset[str] = frozenset()
    """Keys whose values are folders of models, relative likewise, or hub ids, which stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A command line or a file, read."""

    layer: Layer
    """What the foreign words set, each value with its word as the origin, and what is wrong with them."""
    own: Sequence[str]
    """The words that are ours, as they stand."""
    lines: Sequence[str]
    """One line for each foreign word: what it is here."""


@dataclass(frozen=True, slots=True)
class Word:
    """A foreign key with its value."""

    text: str
    """As messages call it."""
    key: str
    """As the vocabulary has it."""
    value: Any
    origin: str

    def problem(self, kind: str, path: str, value: Any, reason: str) -> Problem:
        """What is wrong with it."""
        shown = toml_value(value)
        shown = shown if len(shown) <= 80 else shown[:79] + "…"
        return Problem(kind=kind, path=path, value=shown, origin=self.origin, reason=reason)


def read_words(overrides: Sequence[str], vocabulary: Vocabulary) -> Reading:
    """Read what belongs to the vocabulary; all else is left as it is, and later stands on top of it."""
    words: list[Word] = []
    own: list[str] = []
    problems: list[Problem] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        key = key.strip().lstrip("+")  # Hydra's +key=value adds a key, ++key=value forces it
        if equals and key in vocabulary.meanings:
            words.append(Word(text, key, foreign_value(value), f"command line: {text}"))
        elif equals and key.partition(".")[0] in vocabulary.tables:
            (masked,) = mask_arguments([text])
            problems.append(unknown_word(key, f"command line: {masked}", vocabulary))
        else:
            own.append(text)
    values = {word.key: word.value for word in words}
    return interpret(words, values, vocabulary, own=own, problems=problems)


def interpret(
    words: Sequence[Word], values: Words, vocabulary: Vocabulary, *, own: Sequence[str], problems: Sequence[Problem]
) -> Reading:
    """What the words set, together with the problems that are known already.

    Args:
        words: each a key of the vocabulary
        values: theirs by key, and of any others that may decide what they mean
        vocabulary: what they mean
        own: overrides in our own words, which will stand above
        problems: shown with those that are found
    """
    found = list(problems)
    lines: list[str] = []
    decided: dict[str, tuple[Word, Any]] = {}
    told: set[str] = set()
    for word in words:
        meaning = vocabulary.meanings[word.key]
        try:
            value = meaning.read(word.value, values)
        except Refused as refusal:
            wrong = next((other for other in words if other.key == refusal.of), word)
            if refusal.of is None or str(refusal) not in told:
                found.append(wrong.problem("refused", wrong.key, wrong.value, str(refusal)))
            told.add(str(refusal))
            continue
        if isinstance(value, Several):
            sets = dict(value)
        else:
            sets = {meaning.ours: value, **meaning.also} if meaning.ours else {}
        for key, item in sets.items():
            first, known = decided.setdefault(key, (word, item))
            if first is not word and known != item:
                reason = f"{first.text} says {toml_value(known)}: give one of the two"
                found.append(word.problem("bad value", key, item, reason))
        lines.append(_line(word, meaning, sets, own))
    return Reading(layer=_layer(decided, found), own=own, lines=lines)


def _line(word: Word, meaning: Meaning, sets: Mapping[str, Any], own: Sequence[str]) -> str:
    if not sets:
        return f"{word.text} sets nothing: {meaning.why}"
    shown = ", ".join(f"{key} = {toml_value(value)}" for key, value in sets.items())
    above = [text for text in own if any(_touches(text, key) for key in sets)]
    note = f"but {', '.join(above)} stands above it" if above else meaning.why
    return f"{word.text} -> {shown}" + (f" ({note})" if note else "")


def _layer(decided: Mapping[str, tuple[Word, Any]], problems: Sequence[Problem]) -> Layer:
    tree: dict[str, Any] = {}
    origins: dict[KeyPath, str] = {}
    for key, (word, value) in decided.items():
        *tables, name = path = tuple(key.split("."))
        place = tree
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = value
        origins[path] = word.origin
    return Layer(tree=tree, origins=origins, problems=tuple(problems))


def foreign_value(text: str) -> Any:
    """A value as Hydra reads it: ``True``, ``None``, ``[a,'b']``, numbers, else text."""
    text = text.strip()
    if text[:1] == "[" and text[-1:] == "]":
        return [foreign_value(item) for item in text[1:-1].split(",") if item.strip()]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    constants = {"True": True, "False": False, "None": None, "null": None}
    return constants[text] if text in constants else parse_value(text)


def unknown_word(key: str, origin: str, vocabulary: Vocabulary) -> Problem:
    """A key that the vocabulary does not have."""
    near = nearest_key(key, vocabulary.meanings)
    reason = f"did you mean {near} ?" if near else f"of {vocabulary.name}'s keys this one has no meaning here"
    return Problem(kind="unknown key", path=key, origin=origin, reason=reason)


def _touches(text: str, ours: str) -> bool:
    """Whether a word of our own sets the key, a part of it, or the table around it."""
    own, _, value = text.partition("=")
    own = own.strip()
    if own in SHORT_FORMS and not value.lstrip().startswith("{"):
        own = f"{own}.{SHORT_FORMS[own]}"
    return f"{own}.".startswith(f"{ours}.") or f"{ours}.".startswith(f"{own}.")
