"""Render Jinja templates of others: in Jinja's sandbox, with limits on steps and sizes, and without a clock.

Jinja's sandbox keeps a template from reaching Python. It does not limit time and memory, so this one also counts the
iterations of loops and calls of macros, and bounds the size of every text that an expression makes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import wraps
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

LONGEST_TEMPLATE = 200_000
"""Characters of a template. Published ones have up to about 20,000."""
LONGEST_TEXT = 4_000_000
"""Characters of a text that a template makes."""
MOST_STEPS = 200_000
"""Iterations of loops and calls of macros in one rendering; 100 items or 1,000 characters made count as one."""
LONGEST_TIME_S = 10.0
"""Seconds of one rendering. Published templates take less than a thousandth."""
LARGEST_ARGUMENT = 1_000
"""Largest number passed to a filter or a method, such as a width."""
TODAY = date(2024, 7, 26)
"""The date of ``strftime_now``: the same tokens on every day. It is the default that Llama's templates state."""
_FILTERS = (
    "abs capitalize count default d dictsort e escape first float groupby indent int items join last length list"
    " lower map max min reject rejectattr replace reverse round safe select selectattr slice sort string sum title"
    " tojson trim unique upper wordcount batch attr"
)
FILTERS = frozenset(_FILTERS.split())
_TEXT_METHODS = (
    "capitalize count endswith find index isalnum isalpha isdigit islower isnumeric isspace isupper join lower"
    " lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines"
    " startswith strip title upper"
)
TEXT_METHODS = frozenset(_TEXT_METHODS.split())


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """An environment like that of transformers' ``apply_chat_template``, with limits.

    ``random``, ``format`` and padding are not available.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self._steps, self._deadline = 0, math.inf
        own = {**self.filters, "tojson": _to_json, "replace": _replace}
        self.filters = {name: self._limited(own[name]) for name in FILTERS}
        self.globals = {
            "range": self.globals["range"],
            "dict": dict,
            "namespace": self.globals["namespace"],
            "raise_exception": _raise,
            "strftime_now": TODAY.strftime,
        }

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Join the parts of an output within the limit."""
        return _join("", parts)

    def render(self, template: Template, variables: Mapping[str, Any]) -> str:
        """Return the text of a template. Raises any exception: those of Jinja, and those of the template's mistakes."""
        self._steps, self._deadline = 0, time.monotonic() + LONGEST_TIME_S
        return _join("", template.generate(variables))

    def step(self, count: int = 1) -> bool:
        """Count an iteration of a loop or a call of a macro."""
        self._steps += count
        if self._steps > MOST_STEPS or (self._steps % 64 == 0 and time.monotonic() > self._deadline):
            raise SecurityError(f"the template takes more than {MOST_STEPS:,} steps or {LONGEST_TIME_S:g} seconds")
        return True

    def joined(self, *parts: Any) -> str:
        """Compute ``a ~ b``."""
        text = _join("", map(str, parts))
        self._sized(text)
        return text

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute an arithmetic operation whose result is small."""
        if operator == "**" or (operator == "%" and not isinstance(left, (int, float))):
            raise SecurityError(f"the operator {operator} is not available")
        if operator == "*":
            sizes = [len(value) if isinstance(value, (str, list, tuple)) else value for value in (left, right)]
            if all(isinstance(size, int) for size in sizes) and abs(sizes[0] * sizes[1]) > 2**53:
                raise SecurityError("a product is too large")
            if not all(isinstance(value, (int, float)) for value in (left, right)):
                _check_size(sizes[0] * sizes[1])
        if operator == "+" and all(isinstance(value, (str, list, tuple)) for value in (left, right)):
            _check_size(len(left) + len(right))
        return self._sized(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow the methods of texts that cannot make long ones from short ones."""
        if isinstance(obj, str) and attr not in TEXT_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method or a macro with small arguments. The names are those of Jinja: keywords may be called self."""
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name in ("replace", "join"):
            return __self._sized(_replace(owner, *args) if name == "replace" else _join(owner, *args))
        return super().call(__context, __obj, *args, **kwargs)

    def _sized(self, result: Any) -> Any:
        """Count the items or characters of a result."""
        if isinstance(result, (str, list, tuple)):
            self.step(len(result) // (1000 if isinstance(result, str) else 100))
            _check_size(len(result))
        return result

    def _limited(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter that rejects large numbers, and whose results are counted."""

        @wraps(function)  # with Jinja's marks of the arguments to pass
        def limited(*arguments: Any, **keywords: Any) -> Any:
            for value in (*arguments[1:], *keywords.values()):
                if isinstance(value, int) and abs(value) > LARGEST_ARGUMENT:
                    raise SecurityError(f"a filter takes numbers up to {LARGEST_ARGUMENT:,}")
            return self._sized(function(*arguments, **keywords))

        return limited

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Concatenations().visit(super()._parse(source, name, filename))
        loops = list(tree.find_all(nodes.For))
        repeated: list[nodes.For | nodes.Macro | nodes.CallBlock] = [
            *loops, *tree.find_all(nodes.Macro), *tree.find_all(nodes.CallBlock),
        ]  # fmt: skip
        for block in repeated:
            block.body.insert(0, nodes.ExprStmt(_call("step"), lineno=block.lineno))
        for loop in loops:
            if loop.test is not None:
                loop.test = nodes.And(_call("step"), loop.test)
        tree.set_environment(self)
        return tree


class _Concatenations(NodeTransformer):
    """Replace ``a ~ b`` by a call that limits the result."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        call = _call("joined", *node.nodes)
        call.set_lineno(node.lineno)
        return call


class _Generation(Extension):
    """The tag ``generation``, which marks an assistant's text for other libraries, has no effect here."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the contents of the tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _call(method: str, *arguments: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method), list(arguments), [], None, None)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _check_size(size: int) -> None:
    if size > LONGEST_TEXT:
        raise SecurityError(f"the template makes a text of more than {LONGEST_TEXT:,} characters")


def _join(separator: str, parts: Iterable[Any]) -> str:
    texts, size = [], 0
    for part in parts:
        texts.append(str(part))
        size += len(texts[-1]) + len(separator)
        _check_size(size)
    return separator.join(texts)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    text, old, new = str(text), str(old), str(new)
    _check_size(len(text) + text.count(old) * len(new))
    return text.replace(old, new, -1 if count is None else count)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
