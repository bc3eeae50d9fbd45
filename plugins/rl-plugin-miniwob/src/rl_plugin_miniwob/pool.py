"""The windows of this process. They are kept between episodes, because a browser starts in a second."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rlcore.errors import EnvironmentFailure

from rl_plugin_miniwob.chromium import Chromium
from rl_plugin_miniwob.page import Page

WINDOWS_PER_BROWSER = 8
"""A browser with one window needs 270 MB, and four with 32 windows 1.4 GB. If a browser ends, its episodes fail."""


class Pool:
    """Browsers and their windows. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Chromium, int] = {}
        """Number of windows of each browser."""
        self._idle: list[Page] = []

    def acquire(self) -> Page:
        """Return a window that nobody uses. A browser is started if all have enough windows.

        Raises:
            UserError: Chromium is not installed or does not start.
            EnvironmentFailure: the browser ended.
        """
        with self._lock:
            self._forget_ended()
            if self._idle:
                return self._idle.pop()
            browser = next((one for one, count in self._open.items() if count < WINDOWS_PER_BROWSER), None)
            if browser is None:
                browser = Chromium()
                self._open[browser] = 0
            self._open[browser] += 1
        try:
            return Page(browser)
        except EnvironmentFailure:
            self._give_up(browser)
            raise

    def release(self, page: Page) -> None:
        """Keep a window for another episode."""
        with self._lock:
            self._idle.append(page)

    def discard(self, page: Page) -> None:
        """Close a window in an unknown state."""
        self._give_up(page.browser)
        with suppress(EnvironmentFailure):
            page.close()

    @contextmanager
    def page(self) -> Iterator[Page]:
        """A window for the time of the context. After an error, it is closed."""
        page = self.acquire()
        try:
            yield page
        except BaseException:
            self.discard(page)
            raise
        self.release(page)

    def close(self) -> None:
        """End all browsers. Later calls start new ones."""
        with self._lock:
            browsers, self._open, self._idle = list(self._open), {}, []
        for browser in browsers:
            browser.close()

    def _give_up(self, browser: Chromium) -> None:
        with self._lock:
            self._decrement(browser)

    def _forget_ended(self) -> None:
        for page in [page for page in self._idle if not page.usable]:
            self._idle.remove(page)
            self._decrement(page.browser)
        for browser in [one for one in self._open if not one.alive]:
            del self._open[browser]
            browser.close()

    def _decrement(self, browser: Chromium) -> None:
        if browser in self._open:  # it may have ended
            self._open[browser] -= 1


POOL = Pool()
"""The pool of this process."""
atexit.register(POOL.close)

__all__ = ["POOL", "Pool"]
