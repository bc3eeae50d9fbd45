"""Options of ``rlcore data prepare`` and ``label``: ``key=value``, or ``--name value`` as in other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from rlcore.config.fields import annotation_of, union_members
from rlcore.config.layers import COMMAND_LINE, Layer, override_layers, parse_value
from rlcore.config.messages import Problem, ProblemsError
from rlcore.config.schema import Table
from rlcore.errors import did_you_mean


def option_layers(arguments: Sequence[str], model: type[BaseModel] | None) -> list[Layer]:
    """Return one layer for each option.

    ``--name value`` and ``--name=value`` set the key ``name``, or the key that `Table.FLAGS` of the model assigns to
    it. A flag of a key that is true or false needs no value. Hyphens and underscores are equal.

    Raises:
        ConfigError: all options with an unknown name, without a value, or of another form.
    """
    keys = _keys_by_flag(model)
    own: list[str] = []
    layers: list[Layer] = []
    problems: list[Problem] = []
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        if not argument.startswith("--"):
            own.append(argument)
            continue
        flag, equals, value = argument.partition("=")
        key = keys.get(flag[2:].replace("-", "_"))
        kinds = set(union_members(annotation_of(model, (key,)))) if model is not None and key is not None else set()
        origin = f"{COMMAND_LINE}{argument}"
        if not equals and bool in kinds:
            value = "true"
        elif not equals and waiting and not waiting[-1].startswith("--") and (key or "=" not in waiting[-1]):
            value = waiting.pop()
            origin = f"{origin} {value}"
        elif not equals and key is not None:
            reason = f"needs a value: {flag} VALUE"
            problems.append(Problem(kind="bad override", path=flag, origin=origin, reason=reason))
        if key is None:
            reason = _nearest(flag, keys)
            problems.append(Problem(kind="unknown key", path=flag, origin=origin, reason=reason))
        else:
            found = value if str in kinds else parse_value(value)
            layers.append(Layer(tree={key: found}, origins={(key,): origin}))
    try:
        layers += override_layers(own)
    except ProblemsError as error:
        problems += error.problems
    if problems:
        raise ProblemsError(problems, subject="the options")
    return layers


def _keys_by_flag(model: type[BaseModel] | None) -> Mapping[str, str]:
    if model is None:
        return {}
    keys = {name: name for name in model.model_fields}
    return {**model.FLAGS, **keys} if issubclass(model, Table) else keys


def _nearest(flag: str, keys: Mapping[str, str]) -> str:
    near = did_you_mean(flag[2:].replace("-", "_"), keys)
    return near.replace("'", "'--", 1) if near else "--help-options lists the options of this dataset"


__all__ = ["option_layers"]
