"""The keys and values of tables against pydantic models: mistakes are collected, each with its origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rlcore.config.fields import annotation_of, doc_of, inner_models, keys_of, number_wanted, takes_texts
from rlcore.config.layers import BARE_WORD, DEFAULT, KeyPath, Layer, Merged, merge_layers
from rlcore.config.messages import Problem, ProblemsError, nearest_key
from rlcore.config.reinforced_cot import GRPO, SFT
from rlcore.config.secrets import MASK, SECRET_VALUE, is_secret, mask_arguments
from rlcore.config.verl import VERL

Model = type[BaseModel] | Literal["missing"] | None
"""A component's model; None when it takes no keys; ``missing`` when it could not be imported, which was said."""
WANTED = {
    "int_parsing": "an integer",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "a table",
}
"""What a field needs, by pydantic's name of the mistake."""


def validate_options(model: type[BaseModel] | None, layers: Sequence[Layer], *, subject: str) -> BaseModel | None:
    """One component's own table on its own, such as the options of ``rlcore data prepare``.

    Raises:
        ConfigError: every mistake in it.
    """
    merged = merge_layers(layers)
    judge = Judge(merged)
    found = judge.own(model, merged.tree, ())
    judge.finish(subject)
    return found


class Judge:
    """Validates one table after another, remembering mistakes and the keys that would have been right."""

    def __init__(self, merged: Merged) -> None:
        self.merged = merged
        self.problems: list[Problem] = list(merged.problems)
        self.unknown: list[KeyPath] = []
        self.known: set[str] = set()

    def finish(self, subject: str = "the run's configuration") -> None:
        """Raise `ConfigError` with everything that was wrong."""
        self._name_unknown_keys()
        if self.problems:
            raise ProblemsError(sorted(self.problems, key=lambda problem: problem.origin == DEFAULT), subject=subject)

    def own(self, model: Model, values: Mapping[str, Any], path: KeyPath) -> BaseModel | None:
        """A component's own keys by its own model; None when there is none or something is wrong."""
        if model == "missing":
            return None
        if model is None:
            self.unknown += [(*path, key) for key in values]
            return None
        self.known |= {".".join((*path, key)) for key in keys_of(model)}
        if model.model_config.get("extra", "ignore") == "ignore":  # what a model would drop in silence is a mistake
            names = set(model.model_fields) | {field.alias for field in model.model_fields.values()}
            self.unknown += [(*path, key) for key in values if key not in names]
        found = self.validate(model, values, path)
        return found if isinstance(found, BaseModel) else None

    def validate(self, model: type[Any], values: Mapping[str, Any], path: KeyPath) -> Any:
        """The model of the values that stand at ``path``; None when something is wrong with them.

        One word where a list of texts belongs is a list of one.
        """
        values = _words_in_lists(model, values)
        truths = set()
        for place, value, kind in _truths_for_numbers(model, values):  # pydantic takes true for 1
            self.bad((*path, *place), value, f"needs {WANTED[f'{kind}_type']}", doc_of(model, place))
            truths.add((*path, *place))
        try:
            found = model.model_validate(values)
            return None if truths else found
        except ValidationError as error:
            reasons: dict[KeyPath, list[ErrorDetails]] = {}
            for detail in error.errors(include_url=False):
                place = _existing(values, tuple(map(str, detail["loc"])), detail["type"])
                reasons.setdefault((*path, *place), []).append(detail)
            for place, details in reasons.items():
                if place not in truths:
                    self._explain(model, place, path, details)
            return None

    def _explain(self, model: type[BaseModel], place: KeyPath, path: KeyPath, details: list[ErrorDetails]) -> None:
        if any(detail["type"] == "extra_forbidden" for detail in details):
            self.unknown.append(place)
            return
        messages = list(dict.fromkeys(_sentence(model, place[len(path) :], detail) for detail in details))
        doc = doc_of(model, place[len(path) :])
        if any(detail["type"] == "missing" for detail in details):
            origin = self.merged.origin(place[:-1]) if len(place) > 1 else "no layer sets it"
            reason = f"needed: give it a value, such as {'.'.join(place)}=…"
            self.problems.append(
                Problem(kind="missing key", path=".".join(place), origin=origin, reason=reason, doc=doc)
            )
            return
        secret = any(detail["type"] == SECRET_VALUE for detail in details)
        self.bad(place, details[0]["input"], "\nor: ".join(messages), doc, secret=secret)

    def bad(self, path: KeyPath, value: object, reason: str, doc: str | None = None, *, secret: bool = False) -> None:
        """A value that cannot be; neither it nor the override that holds it is shown when it is a secret."""
        secret = secret or is_secret(path[-1])
        origin = self.merged.origin(path)
        shown = MASK if secret else repr(value)
        shown = shown if len(shown) <= 80 else shown[:79] + "…"
        problem = Problem(
            kind="bad value",
            path=".".join(path),
            value=shown,
            origin=origin.partition("=")[0] if secret else origin,
            reason=reason,
            doc=doc,
        )
        self.problems.append(problem)

    def not_found(self, path: KeyPath, reason: str, value: str | None = None) -> None:
        """Something that the value at ``path`` names is not there."""
        origin = self.merged.origin(path)
        problem = Problem(kind="not found", path=".".join(path), value=value, origin=origin, reason=reason)
        if problem not in self.problems:
            self.problems.append(problem)

    def _name_unknown_keys(self) -> None:
        for path in dict.fromkeys(self.unknown):
            shown = ".".join(path)
            near = nearest_key(shown, self.known) or nearest_key(_first_place(shown), self.known)
            near = near or next(iter(get_close_matches(shown, VERL.meanings, n=1, cutoff=0.85)), None)
            near = near or next(iter(get_close_matches(shown.upper(), (SFT.block, GRPO.block), n=1, cutoff=0.75)), None)
            parent = shown.rpartition(".")[0]
            siblings = sorted(key.rpartition(".")[2] for key in self.known if key.rpartition(".")[0] == parent)
            if near is not None:
                reason = f"did you mean {near} ?"
            elif siblings:
                reason = f"{parent or 'the top level'} has: {', '.join(siblings)}"
            else:
                reason = f"{parent or 'it'} takes no keys of its own"
            (origin,) = mask_arguments([self.merged.origin(path)])
            self.problems.append(Problem(kind="unknown key", path=shown, origin=origin, reason=reason))


def _words_in_lists(model: type[BaseModel], values: Mapping[str, Any], place: KeyPath = ()) -> dict[str, Any]:
    """A copy of the values in which one word is a list of one where ``model`` takes a list of texts."""
    copy = dict(values)
    for key, value in values.items():
        if isinstance(value, Mapping):
            copy[key] = _words_in_lists(model, value, (*place, key))
        elif isinstance(value, str) and BARE_WORD.fullmatch(value) and takes_texts(annotation_of(model, (*place, key))):
            copy[key] = [value]
    return copy


def _truths_for_numbers(model: type[BaseModel], value: Any, place: KeyPath = ()) -> Iterator[tuple[KeyPath, bool, str]]:
    """Every true or false that stands where ``model`` takes a number alone, with the kind of number."""
    if isinstance(value, bool):
        if kind := number_wanted(annotation_of(model, place)):
            yield place, value, kind
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _truths_for_numbers(model, item, (*place, str(key)))


def _sentence(model: type[BaseModel], place: KeyPath, detail: ErrorDetails) -> str:
    """What a field needs, in our words; the value is shown elsewhere, because it may be a secret."""
    if detail["type"] in WANTED:
        return f"needs {WANTED[detail['type']]}"
    if detail["type"] in {"model_type", "model_attributes_type"}:
        inner = [found for found, where in inner_models(annotation_of(model, place)) if not where]
        keys = ", ".join(key for found in inner for key in found.model_fields)
        return f"is a table; its keys are {keys}" if keys else "needs a table"
    return detail["msg"].removeprefix("Value error, ")


def _existing(values: Any, location: KeyPath, kind: str) -> KeyPath:
    """The part of pydantic's location that is a path in the values: it also names the branches of unions."""
    place: KeyPath = ()
    for index, part in enumerate(location):
        if isinstance(values, Mapping) and part in values:
            values = values[part]
        elif isinstance(values, list) and part.isdecimal() and int(part) < len(values):
            values = values[int(part)]
        elif kind == "missing" and index == len(location) - 1:
            pass
        else:
            continue
        place = (*place, part)
    return place


def _first_place(key: str) -> str:
    """``a.3.b`` as ``a.0.b``: the keys of a list's tables are known by its first place."""
    return ".".join("0" if part.isdecimal() else part for part in key.split("."))
