"""Conditions on the rows of an index, such as ``reward == 0 and stop == "length"``.

A condition is an expression of Python, of which only comparisons of columns and constants are allowed, joined by
``and``, ``or`` and ``not``. It is interpreted here and never evaluated by Python.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.errors import UserError, did_you_mean

LONGEST = 1000
"""Limit of a condition in characters."""
MOST_NODES = 200
"""Limit of its parts."""
COLUMNS = (
    *("purpose", "step", "group", "sibling", "task", "environment", "reward", "stop", "failure", "tokens", "turns"),
    *("mean", "spread", "fate", "why", "role", "excluded", "trained_step", "trained_version", "staleness", "versions"),
    *("temperature", "top_p", "top_k", "max_new_tokens", "seed"),
)
"""The columns of every index. The ids of rewards and the names of metrics of the trajectories are columns as well."""
GROUPED = ("sampling", "metrics", "rewards")
"""The columns of a row that are mappings, in the order in which a name is looked up in them."""
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda value, inside: value in inside,
    ast.NotIn: lambda value, inside: value not in inside,
}


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on a row."""

    text: str
    _tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> Where:
        """Read a condition.

        Raises:
            UserError: it is no condition, or too long.
        """
        try:
            if len(text) > LONGEST:
                raise ValueError(f"{len(text):,} characters; the limit is {LONGEST:,}")
            tree = ast.parse(text.strip(), mode="eval").body
            if (count := sum(1 for _ in ast.walk(tree))) > MOST_NODES:
                raise ValueError(f"{count} parts; the limit is {MOST_NODES}")
            _check(tree)
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            said = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
            raise UserError(
                "--where is no condition on the columns of a trajectory",
                found=said,
                where=f"--where {text[:80]!r}",
                fix="compare columns with values, such as: --where 'reward == 0 and stop == \"length\"'",
            ) from None
        return cls(text, tree)

    def check(self, known: Collection[str]) -> None:
        """Raise `UserError` if a name is neither in `COLUMNS` nor in ``known``."""
        for name in self.unknown(known):
            fix = did_you_mean(name, [*COLUMNS, *known]) or f"use one of {', '.join(COLUMNS)}"
            raise UserError(f"there is no column {name!r}", where=f"--where {self.text[:80]!r}", fix=fix)

    def unknown(self, known: Collection[str]) -> list[str]:
        """The names that are neither in `COLUMNS` nor in ``known``."""
        names = [node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)]
        return [name for name in names if name not in {*COLUMNS, *GROUPED, *known, *_WORDS}]

    def __call__(self, row: Mapping[str, Any]) -> bool:
        """Whether a row meets the condition. A comparison with a missing value is false, except by ``is``, ``!=``."""
        return bool(_value(self._tree, row))


def names_of(row: Mapping[str, Any]) -> set[str]:
    """The names that a row adds to `COLUMNS`."""
    return {name for column in GROUPED for name in row.get(column, ())}


def column_of(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column; None if the row has none."""
    if name in row and name not in GROUPED:
        return row[name]
    return next((row[column][name] for column in GROUPED if name in row.get(column, ())), None)


def _check(node: ast.expr) -> None:
    """Raise `ValueError` for everything but comparisons."""
    match node:
        case ast.BoolOp(values=values):
            for value in values:
                _check(value)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            _check(operand)
        case ast.Compare(left=left, comparators=comparators):
            for value in (left, *comparators):
                _check(value)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for value in elements:
                _check(value)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str())) if name in GROUPED:
            pass
        case ast.Name() | ast.Constant(value=str() | int() | float() | None):
            pass
        case _:
            raise ValueError(f"{ast.unparse(node)[:40]!r} is not allowed")


def _value(node: ast.expr, row: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _WORDS[name] if name in _WORDS else column_of(row, name)
        case ast.Subscript(value=ast.Name(id=column), slice=ast.Constant(value=name)):
            return row.get(column, {}).get(name)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_value(element, row) for element in elements]
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, row) for value in values)
        case ast.BoolOp(values=values):
            return any(_value(value, row) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, row)
        case ast.UnaryOp(operand=operand):
            number = _value(operand, row)
            return -number if isinstance(number, (int, float)) else None
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            values = [_value(each, row) for each in (left, *comparators)]
            return all(map(_compare, ops, values, values[1:]))
    raise ValueError(ast.dump(node))


def _compare(op: ast.cmpop, left: Any, right: Any) -> bool:
    try:
        return bool(_COMPARISONS[type(op)](left, right))
    except TypeError:  # a missing value has no order and contains nothing
        return False


__all__ = ["COLUMNS", "Where", "column_of", "names_of"]
