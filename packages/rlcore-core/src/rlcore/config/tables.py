"""Validate tables with pydantic models, and collect all problems with their origins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rlcore.config.fields import (
    annotation_of,
    doc_of,
    inner_models,
    is_secret_field,
    is_string_list,
    keys_of,
    non_finite,
    number_type,
    remember_secret_fields,
)
from rlcore.config.layers import BARE_WORD, DEFAULT, OVERRIDES, Layer, leaves
from rlcore.config.merge import Merged, merge_layers
from rlcore.config.messages import MOST_SHOWN, Problem, ProblemsError, most_similar, nearest_key
from rlcore.config.origins import KeyPath
from rlcore.config.schema import RunConfig, Table
from rlcore.plugin_calls import error_text, plugin_code
from rlcore.redaction import MASK, SECRET_VALUE, holds_mask, is_secret, redacted

Model = type[BaseModel] | Literal["missing"] | None
"""A component's model. None: it takes no keys. ``missing``: its import failed, which is already reported."""
EXPECTED = {
    "int_parsing": "an integer",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "a table",
}
"""What a field needs, by the type of pydantic's error."""


def validate_options(model: type[BaseModel] | None, layers: Sequence[Layer], *, subject: str) -> BaseModel | None:
    """Validate the table of a single component, such as the options of ``rlcore data prepare``.

    Raises:
        ConfigError: all problems in the table.
    """
    merged = merge_layers(layers, short_forms={})  # its key ``model`` is not a table
    validator = TableValidator(merged)
    found = validator.own(model, merged.tree, ())
    validator.finish(subject)
    return found


def check_secrets(tree: Mapping[str, Any], merged: Merged) -> None:
    """Ask for the secrets that an earlier run masked.

    Raises:
        ProblemsError: lists the key of every masked value.
    """
    problems = []
    for path, value in leaves(tree):
        if holds_mask(value):
            key = ".".join(path)
            example = value if isinstance(value, str) and value != MASK else '"$SECRET"'
            reason = (
                "this secret is never written to a file, so it must be given again:\n"
                f"{key}={example} on the command line, from an environment variable, or -c FILE with this key"
            )
            problems.append(Problem(kind="missing secret", path=key, origin=merged.origin(path), reason=reason))
    if problems:
        raise ProblemsError(problems)


class TableValidator:
    """Validates tables one by one, and collects problems and valid keys."""

    def __init__(
        self,
        merged: Merged,
        *,
        nearest_adapter_key: Callable[[str], str | None] = lambda key: None,
        hint: str | None = None,
    ) -> None:
        # nearest_adapter_key: the closest key of another system to an unknown key, or None;
        # hint: advice for an unknown top-level key.
        self.merged = merged
        self.nearest_adapter_key = nearest_adapter_key
        self.hint = hint
        self.problems: list[Problem] = list(merged.problems)
        self.unknown: list[KeyPath] = []
        self.known: set[str] = set()
        self.renamed: dict[str, str] = dict(RunConfig.RENAMED)
        self.trainers: dict[str, list[str]] = {}
        """The trainers that have a table, by its name."""
        self.secret: set[str] = set()

    def finish(self, subject: str = "the run's configuration") -> None:
        """Raise `ConfigError` with all problems, if there are any."""
        self._report_unknown_keys()
        self._report_invalid_text()
        if self.problems:
            raise ProblemsError(sorted(self.problems, key=lambda problem: problem.origin == DEFAULT), subject=subject)

    def own(self, model: Model, values: Mapping[str, Any], path: KeyPath) -> BaseModel | None:
        """Validate a component's keys with its own model; None when it has no model or there are problems."""
        if model == "missing":
            return None
        if model is None:
            self.unknown += [(*path, key) for key in values]
            return None
        keys = {".".join((*path, key)): tuple(key.split(".")) for key in keys_of(model)}
        self.known |= set(keys)
        if issubclass(model, Table):
            self.renamed |= {".".join((*path, old)): ".".join((*path, new)) for old, new in model.RENAMED.items()}
        self.secret |= {name for name, key in keys.items() if is_secret_field(model, key)}
        if model.model_config.get("extra", "ignore") == "ignore":  # ignored keys are errors too
            names = set(model.model_fields) | {field.alias for field in model.model_fields.values()}
            self.unknown += [(*path, key) for key in values if key not in names]
        found = self.validate(model, values, path)
        return found if isinstance(found, BaseModel) else None

    def validate(self, model: type[Any], values: Mapping[str, Any], path: KeyPath) -> Any:
        """Validate the values at ``path``; None when there are problems.

        A single string is accepted where the model needs a list of strings.
        """
        remember_secret_fields(model, values, path, self.merged)
        values = _wrap_strings(model, values)
        booleans = set()
        for place, value, kind in _bools_for_numbers(model, values):  # pydantic accepts true as 1
            self.bad((*path, *place), value, f"needs {EXPECTED[f'{kind}_type']}", doc_of(model, place))
            booleans.add((*path, *place))
        try:
            with plugin_code(f"the validation of {'.'.join(path)} by {model.__module__}.{model.__qualname__}"):
                found = model.model_validate(values)
            refused = list(non_finite(found)) if isinstance(found, BaseModel) else []
            for place, number in refused:  # models that are not a `Table` accept them
                place = _existing(values, place, "finite_number")
                self.bad((*path, *place), number, f"needs {EXPECTED['finite_number']}", doc_of(model, place))
            return None if booleans or refused else found
        except ValidationError as error:
            reasons: dict[KeyPath, list[ErrorDetails]] = {}
            for detail in error.errors(include_url=False):
                place = _existing(values, tuple(map(str, detail["loc"])), detail["type"])
                reasons.setdefault((*path, *place), []).append(detail)
            for place, details in reasons.items():
                if place not in booleans:
                    self._explain(model, place, path, details)
            return None
        except Exception as error:  # a validator of a plugin may raise anything
            reason = f"its model {model.__module__}.{model.__qualname__} raised {error_text(error)}"
            self.problems.append(
                Problem(kind="bad value", path=".".join(path), origin=self.merged.origin(path), reason=reason)
            )
            return None

    def _explain(self, model: type[BaseModel], place: KeyPath, path: KeyPath, details: list[ErrorDetails]) -> None:
        if any(detail["type"] == "extra_forbidden" for detail in details):
            self.unknown.append(place)
            return
        messages = list(dict.fromkeys(_sentence(model, place[len(path) :], detail) for detail in details))
        doc = doc_of(model, place[len(path) :])
        if any(detail["type"] == "missing" for detail in details):
            origin = self.merged.origin(place[:-1]) if len(place) > 1 else "no layer sets it"
            reason = f"required: set it, for example {'.'.join(place)}=…"
            self.problems.append(
                Problem(kind="missing key", path=".".join(place), origin=origin, reason=reason, doc=doc)
            )
            return
        secret = any(detail["type"] == SECRET_VALUE for detail in details)
        secret = secret or is_secret_field(model, place[len(path) :])
        self.bad(place, details[0]["input"], "\nor: ".join(messages), doc, secret=secret)

    def bad(self, path: KeyPath, value: object, reason: str, doc: str | None = None, *, secret: bool = False) -> None:
        """Report an invalid value. A secret is masked, and so is the override that sets it."""
        secret = secret or is_secret(".".join(path))
        origin = self._origin(path) if isinstance(value, Mapping) else self.merged.origin(path)
        shown = MASK if secret else repr(redacted(value))
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

    def _origin(self, path: KeyPath) -> str:
        """The overrides within a table, which contradict what was valid before; without them, its origin."""
        found = {
            origin.partition("=")[0] if is_secret(".".join(key)) else origin
            for key, origin in self.merged.origins.items()
            if key[: len(path)] == path and origin.startswith(OVERRIDES)
        }
        return ", ".join(sorted(found)) or self.merged.origin(path)

    def not_found(self, path: KeyPath, reason: str, value: str | None = None) -> None:
        """Report that something named by the value at ``path`` does not exist."""
        origin = self.merged.origin(path)
        problem = Problem(kind="not found", path=".".join(path), value=value, origin=origin, reason=reason)
        if problem not in self.problems:
            self.problems.append(problem)

    def _report_invalid_text(self) -> None:
        """Report texts with lone surrogates, which no file can hold, or with NUL characters, which no path can hold."""
        reported = {problem.path for problem in self.problems}
        for path, value in leaves(self.merged.tree):
            if ".".join(path) in reported:
                continue
            if not _is_unicode((*path, value)):
                self.bad(path, value, "is not valid Unicode text")
            elif isinstance(value, str) and "\0" in value:
                self.bad(path, value, "needs text without NUL characters")

    def _report_unknown_keys(self) -> None:
        for count, path in enumerate(dict.fromkeys(self.unknown)):
            if count >= MOST_SHOWN:  # they are only counted, and suggestions take time
                self.problems.append(
                    Problem(kind="unknown key", path=".".join(path), origin=self.merged.origin(path), reason="")
                )
                continue
            shown = ".".join(path)
            own = nearest_key(shown, self.known) or nearest_key(_first_index(shown), self.known)
            has_its_name = own is not None and own.rpartition(".")[2] == shown.rpartition(".")[2]
            near = own if has_its_name else most_similar(shown, (own, self.nearest_adapter_key(shown)))
            parent = shown.rpartition(".")[0]
            siblings = sorted(key.rpartition(".")[2] for key in self.known if key.rpartition(".")[0] == parent)
            if trainers := self.trainers.get(shown):
                reason = f"it is a table of trainer.id={' or '.join(trainers)}"
            elif shown in self.renamed:
                reason = f"it was replaced by {self.renamed[shown]}"
            elif near is not None:
                reason = f"did you mean {near} ?"
            elif siblings:
                reason = f"valid keys of {parent or 'the top level'}: {', '.join(siblings)}"
                reason += f"\n{self.hint}" if not parent and self.hint else ""
            else:
                reason = f"{parent or 'it'} takes no keys"
            origin = self.merged.origin(path)
            if near is not None and (near in self.secret or is_secret(near)):
                origin = origin.partition("=")[0]  # a misspelled key may have a secret value
            self.problems.append(Problem(kind="unknown key", path=shown, origin=origin, reason=reason))


def _wrap_strings(model: type[BaseModel], values: Mapping[str, Any], place: KeyPath = ()) -> dict[str, Any]:
    """A copy of the values with single strings wrapped in a list where ``model`` needs a list of strings."""
    copy = dict(values)
    for key, value in values.items():
        if isinstance(value, Mapping):
            copy[key] = _wrap_strings(model, value, (*place, key))
        elif isinstance(value, str) and is_string_list(annotation_of(model, (*place, key))):
            copy[key] = [value] if BARE_WORD.fullmatch(value) else value
    return copy


def _bools_for_numbers(model: type[BaseModel], value: Any, place: KeyPath = ()) -> Iterator[tuple[KeyPath, bool, str]]:
    """Booleans where ``model`` needs a number, with the type of the number."""
    if isinstance(value, bool):
        if kind := number_type(annotation_of(model, place)):
            yield place, value, kind
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _bools_for_numbers(model, item, (*place, str(key)))


def _sentence(model: type[BaseModel], place: KeyPath, detail: ErrorDetails) -> str:
    """What a field needs. The value is not part of the text, because it may be a secret."""
    if detail["type"] in EXPECTED:
        return f"needs {EXPECTED[detail['type']]}"
    if detail["type"] in {"model_type", "model_attributes_type"}:
        inner = [found for found, where in inner_models(annotation_of(model, place)) if not where]
        keys = ", ".join(key for found in inner for key in found.model_fields)
        return f"needs a table with the keys {keys}" if keys else "needs a table"
    return detail["msg"].removeprefix("Value error, ")


def _existing(values: Any, location: KeyPath, kind: str) -> KeyPath:
    """The path in the values for a location of pydantic, which also contains the branches of unions."""
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


def _is_unicode(value: Any) -> bool:
    """Whether a value, or the values of a list, can be encoded as UTF-8."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_unicode, value))
    return not isinstance(value, str) or value.encode("utf-8", "replace") == value.encode("utf-8", "surrogatepass")


def _first_index(key: str) -> str:
    """``a.3.b`` as ``a.0.b``: known keys of tables in a list have index 0."""
    return ".".join("0" if part.isdecimal() else part for part in key.split("."))
