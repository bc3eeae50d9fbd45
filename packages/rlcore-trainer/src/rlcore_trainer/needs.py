"""What an advantage or a loss needs, read from its signature. Imports no torch: a run is checked before anything loads.

Positional parameters name what the function is given of a rollout, keyword-only parameters name keys of
``[algorithm]``, or of ``algorithm.options`` for a function of somebody else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.calls import place_of
from rlcore.errors import UserError

ADVANTAGE_DATA = ("rewards_N", "groups_N", "lengths_N", "baselines_N", "rewards_NT", "mask_NT", "values_NT")
"""What an advantage may ask for."""
LOSS_DATA = ("logprobs_M", "old_logprobs_M", "advantages_M", "weights_M", "sequence_M")
"""What a policy loss may ask for."""
DATA: Mapping[str, tuple[str, ...]] = {"advantage": ADVANTAGE_DATA, "loss": LOSS_DATA}


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The names that a function takes."""

    reads: tuple[str, ...]
    """Its positional parameters, in order."""
    options: tuple[str, ...]
    """Its keyword-only parameters."""
    required: tuple[str, ...] = ()
    """Those of ``options`` that have no default."""
    takes_any_option: bool = False
    """Whether it takes keyword arguments that it does not name."""


def needs_of(kind: str, function: Callable[..., Any]) -> Needs:
    """The needs of an advantage or a loss (``kind``).

    A positional parameter with a default, of a name that nobody knows, is left to its default.

    Raises:
        UserError: it has a positional parameter that names nothing a function of this kind is given.
    """
    known = DATA[kind]
    reads: list[str] = []
    options: list[str] = []
    required: list[str] = []
    takes_any_option = False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any_option = True
        elif parameter.kind is parameter.KEYWORD_ONLY:
            options.append(name)
            if parameter.default is parameter.empty:
                required.append(name)
        elif name in known and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            reads.append(name)
        elif parameter.default is parameter.empty:
            shown = str(parameter.replace(annotation=parameter.empty))
            raise UserError(
                f"the positional parameters of {_article(kind)} name what it is given",
                found=f"{getattr(function, '__name__', function)} has the parameter {shown}",
                where=place_of(function),
                mend=f"choose among {', '.join(known)}; keys of [algorithm] are keyword-only parameters",
            )
    return Needs(
        reads=tuple(reads), options=tuple(options), required=tuple(required), takes_any_option=takes_any_option
    )


class Injected:
    """A function that is called with exactly what its signature names, and whose answer is checked.

    Args:
        kind: ``advantage`` or ``loss``
        function: what is called
        keys: the keys of ``[algorithm]`` by name
        own: ``algorithm.options``, which reach the parameters of these names and any ``**options``

    Raises:
        UserError: as `needs_of`, or a keyword-only parameter has neither a value nor a default.
    """

    def __init__(
        self, kind: str, function: Callable[..., Any], *, keys: Mapping[str, Any], own: Mapping[str, Any]
    ) -> None:
        self._kind, self._function, self._needs = kind, function, needs_of(kind, function)
        values = {**keys, **own}
        self._options = {name: values[name] for name in self._needs.options if name in values}
        if self._needs.takes_any_option:
            self._options |= own
        if missing := [name for name in self._needs.required if name not in self._options]:
            raise UserError(
                f"the {kind} {getattr(function, '__name__', function)} asks for {', '.join(missing)}",
                found="no key of [algorithm] or algorithm.options of this name",
                where=place_of(function),
                mend=f"set algorithm.options.{missing[0]}",
            )

    def reads(self, *names: str) -> bool:
        """Whether it is given any of these."""
        return any(name in self._needs.reads for name in names)

    def __call__(self, data: Mapping[str, Any]) -> Any:
        """Call it with those of ``data`` that it names: see `rlcore_trainer.answers.ask`."""
        from rlcore_trainer.answers import ask  # whoever has data has torch

        # By name: a parameter that is left to its default may stand between two of them.
        return ask(self._kind, self._function, {name: data[name] for name in self._needs.reads} | self._options, data)


def _article(kind: str) -> str:
    return f"an {kind}" if kind == "advantage" else f"a {kind}"
