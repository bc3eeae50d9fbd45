"""Connections on which a server has sent more than the response to a request.

The HTTP client would take the rest for the response to the next request, and every later response would belong to the
request before. With `one_response`, the connection is closed and the request fails, so that it can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import h11
import httpx2

_found: ContextVar[bool] = ContextVar("surplus", default=False)


@contextmanager
def one_response() -> Iterator[None]:
    """Check that the request in the block, whose response is closed within it, gets one response.

    Raises:
        httpx2.RemoteProtocolError: it gets more.
    """
    token = _found.set(False)
    try:
        yield
        if _found.get():
            raise httpx2.RemoteProtocolError("more than one response to a request")
    finally:
        _found.reset(token)


_state_of_h11: Any = vars(h11.Connection)["their_state"].fget


def _state(connection: h11.Connection) -> Any:
    """The state of the other side. A server that is done, but has sent more, must close the connection."""
    state = _state_of_h11(connection)
    if state is h11.DONE and connection.our_role is h11.CLIENT and connection.trailing_data[0]:
        _found.set(True)
        return h11.MUST_CLOSE
    return state


h11.Connection.their_state = property(_state)  # type: ignore[assignment, method-assign]
