"""Render Jinja templates of others: in Jinja's sandbox, with limits on steps and sizes, and without a clock.

Jinja's sandbox keeps a template from reaching Python. It does not limit time and memory, so this one also counts the
iterations of loops and calls of macros, and bounds what every expression makes. The size of a list is that of all that
is inside, also of what it has several times, so that no function of Python that passes through a value takes long.
`bounded_filters` has the functions whose result can be much larger than what they receive.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import chain
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from rlcore_rollout.chat.bounded_filters import (
    LARGEST_ARGUMENT,
    PlainNamespace,
    check_search,
    check_size,
    indent,
    join,
    join_filter,
    raise_exception,
    replace,
    sum_filter,
    to_json,
    today,
    trim,
)

LONGEST_TEMPLATE = 200_000
"""Characters of a template. Published ones have up to about 20,000."""
MOST_STEPS = 200_000
"""Iterations of loops and calls of macros in one rendering. What expressions make counts, too."""
ITEMS_PER_STEP, CHARACTERS_PER_STEP = 20, 250
"""Items of lists and characters of texts that count as one step: 200 MB in one rendering."""
LONGEST_TIME_S = 10.0
"""Seconds of one rendering. Published templates take less than a thousandth."""
MOST_BITS = 64
"""Bits of an integer that is computed. Dividing long ones takes long."""
_COMPARING = "== != < > <= >= eq ne lt gt le ge equalto lessthan greaterthan in lower upper"
COMPARING = frozenset(_COMPARING.split())
"""Tests that pass through whole values."""
_FILTERS = (
    "abs capitalize count default d dictsort e escape first float groupby indent int items join last length list"
    " lower map max min reject rejectattr replace reverse round safe select selectattr slice sort string sum title"
    " tojson trim unique upper wordcount batch attr"
)
FILTERS = frozenset(_FILTERS.split())
_OF_WHOLE_TEXTS = (
    "capitalize count d default e escape float indent int length lower replace string title tojson trim upper"
)
OF_WHOLE_TEXTS = frozenset([*_OF_WHOLE_TEXTS.split(), "wordcount", "abs", "round", "attr"])
"""Filters that do not make an item of each character of a text."""
_TEXT_METHODS = (
    "capitalize count endswith find index isalnum isalpha isdigit islower isnumeric isspace isupper join lower"
    " lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines"
    " startswith strip title upper"
)
TEXT_METHODS = frozenset(_TEXT_METHODS.split())

_CONTAINERS: Any = (list, tuple, dict, type({}.items()), type({}.keys()), type({}.values()))
_SIZED: Any = (str, *_CONTAINERS)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """An environment like that of transformers' ``apply_chat_template``, with limits.

    ``random``, ``format`` and padding are not available.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        extensions = [_Generation, loopcontrols]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=self._shown)
        self._steps, self._deadline = 0, math.inf
        self._sizes: dict[int, tuple[Any, int]] = {}
        own = {
            **self.filters,
            "tojson": to_json,
            "replace": replace,
            "join": join_filter,
            "sum": sum_filter,
            "indent": indent,
            "trim": trim,
        }
        self.filters = {name: self._limited(own[name], name in OF_WHOLE_TEXTS) for name in FILTERS}
        self.tests |= {name: self._counted(self.tests[name]) for name in COMPARING}
        self.globals = {
            "range": self.globals["range"],
            "dict": dict,
            "namespace": PlainNamespace,
            "raise_exception": raise_exception,
            "strftime_now": today,
        }

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Join the parts of an output within the limit."""
        return join("", parts)

    def render(self, template: Template, variables: Mapping[str, Any]) -> str:
        """Return the text of a template. Raises any exception: those of Jinja, and those of the template's mistakes."""
        self._steps, self._deadline, self._sizes = 0, time.monotonic() + LONGEST_TIME_S, {}
        try:
            return join("", template.generate(variables))
        finally:
            self._sizes = {}

    def step(self, count: int = 1) -> bool:
        """Count an iteration of a loop, a call of a macro, or steps of other work."""
        self._steps += count
        if self._steps > MOST_STEPS or time.monotonic() > self._deadline:
            raise SecurityError(f"the template takes more than {MOST_STEPS:,} steps or {LONGEST_TIME_S:g} seconds")
        return True

    def joined(self, *parts: Any) -> str:
        """Compute ``a ~ b``."""
        text = join("", map(self._shown, parts))
        self.made(text)
        return text

    def made(self, value: Any) -> Any:
        """Count a value that an expression has made, and limit its size."""
        if isinstance(value, str):
            if len(value) >= CHARACTERS_PER_STEP:
                self.step(len(value) // CHARACTERS_PER_STEP)
                check_size(len(value))
        elif isinstance(value, _CONTAINERS):
            self.step(1 + len(value) // ITEMS_PER_STEP)
            check_size(self._size(value))
        elif isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise SecurityError(f"an integer has up to {MOST_BITS} bits")
        return value

    def part(self, value: Any) -> Any:
        """Count a slice, which is not larger than what it is a part of."""
        if isinstance(value, _SIZED):
            self.step(1 + len(value) // (CHARACTERS_PER_STEP if isinstance(value, str) else ITEMS_PER_STEP))
        return value

    def compared(self, result: Any) -> Any:
        """Count a comparison, which may pass through large values."""
        self.step()
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute an arithmetic operation whose result is small."""
        for value in (left, right):
            if isinstance(value, int):
                self.made(value)
        if operator == "**" or (operator == "%" and not isinstance(left, (int, float))):
            raise SecurityError(f"the operator {operator} is not available")
        if operator == "*":
            sizes = [len(value) if isinstance(value, (str, list, tuple)) else value for value in (left, right)]
            if not all(isinstance(size, (int, float)) for size in sizes):
                raise SecurityError("a product is not available for these values")
            if not all(isinstance(value, (int, float)) for value in (left, right)):
                check_size(sizes[0] * sizes[1])
        if operator == "+" and all(isinstance(value, (str, list, tuple)) for value in (left, right)):
            check_size(len(left) + len(right))
        return self.made(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow the methods of texts that cannot make long ones from short ones, and none of numbers."""
        if isinstance(obj, (int, float)) or (isinstance(obj, str) and attr not in TEXT_METHODS):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Leave ``format`` and ``format_map`` to `is_safe_attribute`: they make texts of any length."""

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method or a macro with small arguments. The names are those of Jinja: keywords may be called self."""
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if owner is __self:  # what `_Counting` has put there
            return __obj(*args)
        if isinstance(owner, str):
            for value in chain(args, kwargs.values()):
                check_search(owner, value)
            if name in ("replace", "join"):
                return __self.made(replace(owner, *args) if name == "replace" else join(owner, *args))
        if isinstance(__obj, Macro):  # it makes lists of them
            check_size(sum(map(__self._size, chain(args, kwargs.values()))))
        return __self.made(super().call(__context, __obj, *args, **kwargs))

    def _shown(self, value: Any) -> Any:
        """Return a value of an output, or its text if that can be long."""
        return self.made(str(value)) if isinstance(value, _CONTAINERS) else value

    def _size(self, value: Any) -> int:
        """Characters and items of a value with everything inside it. That of a list is computed once in a rendering."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, _CONTAINERS):
            return 1
        known = self._sizes.get(id(value))
        if known is None:
            inside: Iterable[Any] = chain.from_iterable(value.items()) if isinstance(value, dict) else value
            known = self._sizes[id(value)] = (value, 1 + sum(map(self._size, inside)))  # the value keeps its id
        return known[1]

    def _limited(self, function: Callable[..., Any], whole: bool) -> Callable[..., Any]:
        """Return a filter that rejects large numbers, and whose work and results are counted."""

        @wraps(function)  # with Jinja's marks of the arguments to pass
        def limited(*arguments: Any, **keywords: Any) -> Any:
            for value in (*arguments[1:], *keywords.values()):
                if isinstance(value, int) and abs(value) > LARGEST_ARGUMENT:
                    raise SecurityError(f"a filter takes numbers up to {LARGEST_ARGUMENT:,}")
            self.step()
            if not whole:
                for value in arguments:
                    if isinstance(value, _SIZED):
                        self.step(len(value) // ITEMS_PER_STEP)
            result = function(*arguments, **keywords)
            return map(self.made, result) if hasattr(result, "__next__") else self.made(result)

        return limited

    def _counted(self, test: Any) -> Callable[..., Any]:
        """Return a test that counts as a step."""

        @wraps(test)
        def counted(*arguments: Any, **keywords: Any) -> Any:
            self.step()
            return test(*arguments, **keywords)

        return counted

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Counting().visit(super()._parse(source, name, filename))
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


class _Counting(NodeTransformer):
    """Replace expressions that make or pass through large values by calls that count and limit them."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        call = _call("joined", *node.nodes)
        call.set_lineno(node.lineno)
        return call

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        for operand in node.ops:
            short = isinstance(node.expr, nodes.Const) and operand.op not in ("in", "notin")
            if not (short or isinstance(operand.expr, nodes.Const)):
                return self._wrapped("compared", node)
        return self.generic_visit(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        return self._wrapped("part", node) if isinstance(node.arg, nodes.Slice) else self.generic_visit(node)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._wrapped("made", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._wrapped("made", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self._wrapped("made", node) if node.ctx == "load" else self.generic_visit(node)

    def _wrapped(self, method: str, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        try:
            node.as_const()
        except nodes.Impossible:
            call = _call(method, node)
            call.set_lineno(node.lineno)
            return call
        return node


class _Generation(Extension):
    """The tag ``generation``, which marks an assistant's text for other libraries, has no effect here."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the contents of the tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _call(method: str, *arguments: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method), list(arguments), [], None, None)
