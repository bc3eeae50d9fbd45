"""What a plugin may do wrong when it is called: return anything, or raise anything."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st


class Nasty:
    """An object whose methods raise."""

    def _fail(self, *arguments: object, **keywords: object) -> Any:
        raise RuntimeError("nothing works")

    __str__ = __repr__ = __len__ = __iter__ = __bool__ = __float__ = __int__ = __call__ = _fail
    __eq__ = __lt__ = __getitem__ = __contains__ = __enter__ = __await__ = _fail  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class NastyDict(dict[str, Any]):
    """A dictionary that cannot be read."""

    def items(self) -> Any:
        raise RuntimeError("nothing works")

    __iter__ = __len__ = keys = values = items


class Unreadable(Exception):
    """An exception without a message."""

    def __str__(self) -> str:
        raise ValueError("no message")

    __repr__ = __str__


class Final(BaseException):
    """An exception that is no `Exception`."""


ERRORS: tuple[Callable[[], BaseException], ...] = (
    lambda: ValueError("no\nlicence"),
    lambda: KeyError("x"),
    lambda: RecursionError("too deep"),
    lambda: MemoryError(),
    lambda: StopIteration(3),
    lambda: OSError(5, "I/O"),
    lambda: ExceptionGroup("many", [ValueError("one")]),
    Unreadable,
    lambda: SystemExit(0),
    lambda: SystemExit("bye"),
    lambda: KeyboardInterrupt(),
    lambda: GeneratorExit(),
    lambda: asyncio.CancelledError(),
    lambda: Final("over"),
)
VALUES: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: 0,
    lambda: True,
    lambda: -1.5,
    lambda: 10**400,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: 1j,
    lambda: "text",
    lambda: "\ud800\x00\x1b[2J",
    lambda: b"bytes",
    lambda: {},
    lambda: {"id": "x"},
    lambda: [],
    lambda: [None],
    lambda: ["text", 1],
    lambda: {1, 2},
    lambda: range(3),
    object,
    lambda: object,
    lambda: print,
    Nasty,
    lambda: [Nasty()],
    lambda: NastyDict(a=1),
    lambda: (number for number in range(3)),
    lambda: itertools.count(),
    lambda: itertools.repeat(Nasty()),
)


def returns(value: Any) -> Callable[[], Any]:
    """A call that returns this."""
    return lambda: value


def raises(make: Callable[[], BaseException]) -> Callable[[], Any]:
    """A call that raises a new exception."""

    def act() -> Any:
        raise make()

    return act


def yields_then_raises(make: Callable[[], BaseException]) -> Callable[[], Any]:
    """A call that returns a generator which raises."""

    def act() -> Any:
        yield from ()
        raise make()

    return act


ACTS: st.SearchStrategy[Callable[[], Any]] = st.one_of(
    st.sampled_from(VALUES), st.sampled_from(ERRORS).map(raises), st.sampled_from(ERRORS).map(yields_then_raises)
)
"""Calls with a wrong result."""

ACTING: dict[str, Callable[[], Any]] = {}
"""What components do by the name of a method. A test file that is imported by its path as well shares it."""


def act(name: str, right: Callable[[], Any]) -> Any:
    """The answer of a method: the wrong one if there is one, else the right one."""
    return ACTING[name]() if name in ACTING else right()
