"""Post alerts to a URL."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rlcore.plugin_calls import error_text
from rlcore.trackers.options import WebhookOptions

if TYPE_CHECKING:
    from rlcore.diagnosis.diagnosing import Diagnosis

log = logging.getLogger("rlcore.trackers")
TIMEOUT_S = 5.0
"""Seconds after which a server that does not answer is given up."""
LAST_S = 4.0
"""Seconds for which the end of a run waits for its last alerts: less than `rlcore.plugin_calls.SLOW_S`."""


class WebhookTracker:
    """Posts each alert as JSON in a thread of its own, so that no server delays or ends the run."""

    def __init__(self, options: WebhookOptions, directory: Path | None) -> None:
        self._url = options.url.get_secret_value()
        self._run = directory.name if directory is not None else None
        self._posts: list[Thread] = []
        self._first_failure = Lock()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics are not sent."""

    def alert(self, found: Diagnosis, repeated: bool) -> None:
        """Post an alert, once."""
        if repeated:
            return
        parts = {name: getattr(found, name) for name in ("step", "rule", "text", "key", "fix")}
        body = json.dumps({"run": self._run, **parts}).encode()
        # A daemon, which does not keep the process alive.
        self._posts.append(Thread(target=self._post, args=(body,), name="rlcore-webhook", daemon=True))
        self._posts[-1].start()

    def _post(self, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "rlcore"}  # some services refuse that of urllib
        request = Request(self._url, body, headers)
        try:
            with build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S):
                pass
        except Exception as error:  # nothing else would report it
            self._warn(error_text(error))

    def _warn(self, reason: str) -> None:
        if self._first_failure.acquire(blocking=False):  # never released: further failures are not reported
            log.warning("an alert did not reach trackers.webhook.url: %s; later failures are not reported", reason)

    def close(self) -> None:
        """Wait a short time for alerts on their way."""
        until = time.monotonic() + LAST_S
        for post in self._posts:
            post.join(max(0.0, until - time.monotonic()))
        if any(post.is_alive() for post in self._posts):
            self._warn(f"no answer within {LAST_S:g} s")


class _NoRedirects(HTTPRedirectHandler):
    """Makes a redirect an error: the request after it would be a GET without the alert."""

    def redirect_request(self, *arguments: object) -> None:
        """Do not follow."""
