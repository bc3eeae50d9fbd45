"""Answers are parsed instead of evaluated.

Some verifiers of reasoning-gym call ``eval`` with the answer of the model, to read a list, or sympy's ``parse_expr``,
which calls it. Here both accept only what the verifiers are for. Other answers raise `ValueError`, which these
verifiers treat like an answer with a syntax error.
"""

from __future__ import annotations

import ast
import importlib
import sys
from typing import Any

READ_LISTS = (
    "algorithmic.binary_matrix",
    "algorithmic.number_sorting",
    "algorithmic.spiral_matrix",
    "algorithmic.string_insertion",
    "games.n_queens",
)
"""Modules that call ``eval`` to read a list."""
FUNCTIONS = frozenset(
    {"sqrt", "cbrt", "exp", "log", "ln", "Abs", "erf", "erfi", "Rational", "Integer", "Float", "Pow", "Mul", "Add"}
    | {f"{inverse}{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc") for inverse in ("", "a")}
    | {f"{inverse}{name}h" for name in ("sin", "cos", "tan", "cot") for inverse in ("", "a")}
)
"""Functions of sympy that an expression may call."""
PARTS = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Name, ast.Load, ast.Call, ast.Constant)


def guard_verifiers() -> None:
    """Replace ``eval`` and ``parse_expr`` in the modules of reasoning-gym, and in sympy itself."""
    importlib.import_module("reasoning_gym")
    for name in READ_LISTS:
        vars(importlib.import_module(f"reasoning_gym.{name}"))["eval"] = ast.literal_eval
    parse = importlib.import_module("sympy").parse_expr

    def parse_arithmetic(text: str, *arguments: Any, **keywords: Any) -> Any:
        check_arithmetic(text)
        return parse(text, *arguments, **keywords)

    for name, module in list(sys.modules.items()):
        if (name == "sympy" or name.startswith("reasoning_gym.")) and getattr(module, "parse_expr", None) is parse:
            vars(module)["parse_expr"] = parse_arithmetic


def check_arithmetic(text: str) -> None:
    """Allow numbers, names, operators and calls of `FUNCTIONS`.

    Raises:
        ValueError: the text is something else.
        SyntaxError: it is not an expression.
    """
    for part in ast.walk(ast.parse(text.strip(), mode="eval")):
        allowed = isinstance(part, PARTS)
        if isinstance(part, ast.Call):
            allowed = isinstance(part.func, ast.Name) and part.func.id in FUNCTIONS and not part.keywords
        if isinstance(part, ast.Constant):
            allowed = type(part.value) in (int, float)
        if not allowed:
            raise ValueError(f"{type(part).__name__} is no part of an arithmetic expression")
