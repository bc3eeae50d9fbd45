"""A page of MiniWoB++ in a browser: open it, look at it, act on it."""

from __future__ import annotations

import base64
import json
import os
import threading
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlcore.errors import DataError, EnvironmentFailure, NotInstalledError, did_you_mean
from rlcore_gui.actions import Action, Point

from rl_plugin_miniwob.actions import CLICK, ENTER, SCROLL_DOWN, SCROLL_UP, SELECT, TYPE
from rl_plugin_miniwob.chromium import Chromium, waited

WIDTH, HEIGHT = 160, 210
"""Size of a page in CSS pixels."""
WINDOW = (500, 320)
"""Size of the window, as in the original environment. Some pages centre dialogs in it."""
SCALE = 2
"""Pixels of a screenshot per CSS pixel. The texts of the pages have 10 CSS pixels, which models read badly."""
LONGEST_TEXT = 200
"""Number of typed characters. Further ones are dropped; the longest text that a page asks for is shorter."""
WHEEL = 100
"""Distance of a scroll in CSS pixels."""
_LOADING = threading.Semaphore(os.cpu_count() or 1)
"""Loading a page keeps a core busy. More pages at a time would only make each of them slower, up to the time limit."""
_SCRIPT = files(__package__).joinpath("page.js").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """A visible element."""

    kind: str
    """Its tag, or the type of an input."""
    text: str
    notes: tuple[str, ...]
    """State and attributes: ``checked``, ``#id``, ``fill red``, ``options: a, b``."""
    position: Point
    """A point at which a click reaches it, relative to the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a page says about the episode."""

    done: bool
    reward: float
    """Between -1 and 1, not reduced with time; 0 before the end."""
    task: str


@cache
def pages() -> dict[str, Path]:
    """The files of the pages by name.

    Raises:
        NotInstalledError: the package ``miniwob`` is not installed.
    """
    spec = find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise NotInstalledError("the pages of MiniWoB++ are not installed", fix="pip install miniwob")
    folder = Path(spec.submodule_search_locations[0]) / "html" / "miniwob"
    return {file.stem: file for file in sorted(folder.glob("*.html"))}


def page_file(name: str) -> Path:
    """The file of a page.

    Raises:
        DataError: there is no page with this name.
    """
    known = pages()
    if name not in known:
        near = did_you_mean(name, known)
        fix = near or f"use one of {', '.join(list(known)[:5])}, …"
        raise DataError(f"MiniWoB++ has no page {name!r}", where="data.pages", fix=fix)
    return known[name]


class Page:
    """A window of a browser, in which pages are opened one after the other. Raises as `Chromium.call`."""

    def __init__(self, browser: Chromium) -> None:
        self.browser = browser
        # Windows share nothing, and only a window of a context alone is visible, which input requires.
        self._context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self._context)["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        width, height = WINDOW
        self._call("Inspector.enable")
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=SCALE, mobile=False
        )
        self._call("Emulation.setFocusEmulationEnabled", enabled=True)
        self._pointer = (WIDTH / 2, HEIGHT / 2)

    @property
    def usable(self) -> bool:
        """Whether browser and page still run."""
        return self.browser.alive and not self.browser.crashed(self._session)

    def open(self, name: str, seed: int) -> State:
        """Load a page and start the episode of a seed."""
        self._pointer = (WIDTH / 2, HEIGHT / 2)
        with _LOADING:
            self._call("Page.navigate", url=page_file(name).as_uri())
            self._evaluate(_SCRIPT)
            if self._evaluate(f"rlcore.start({seed})") is not True:
                raise EnvironmentFailure(f"the page {name!r} does not start")
        return self.state()

    def state(self) -> State:
        """The state of the episode."""
        found = self._evaluate("rlcore.state()")
        reward = min(1.0, max(-1.0, float(found["reward"] or 0.0)))
        return State(done=bool(found["done"]), reward=reward, task=found["task"])

    def elements(self) -> list[Element]:
        """The visible elements in reading order."""
        found = [
            Element(kind=one["kind"], text=one["text"], notes=tuple(one["notes"]), position=_point(one["position"]))
            for one in self._evaluate("rlcore.elements()")
        ]
        return sorted(found, key=lambda one: (one.position[1], one.position[0]))

    def screenshot(self) -> bytes:
        """The page as a PNG of `SCALE` times its size."""
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1}
        return base64.b64decode(self._call("Page.captureScreenshot", format="png", clip=clip)["data"])

    def act(self, action: Action) -> None:
        """Carry out an action with real input events."""
        if action.position is not None:
            self._pointer = action.position[0] * WIDTH, action.position[1] * HEIGHT
        x, y = self._pointer
        if action.name == SELECT:
            self._evaluate(f"rlcore.select({x}, {y}, {json.dumps(action.value)})")
        elif action.name == CLICK:
            self._click()
        elif action.name == TYPE:
            if action.position is not None:
                self._click()
                self._evaluate("rlcore.replaceText()")
            self._type((action.value or "")[:LONGEST_TEXT])
        elif action.name == ENTER:
            self._type("\n")
        elif action.name in {SCROLL_UP, SCROLL_DOWN}:
            distance = WHEEL if action.name == SCROLL_DOWN else -WHEEL
            self._call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=distance)

    def close(self) -> None:
        """Close the window."""
        self.browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def _click(self) -> None:
        x, y = self._pointer
        self._input({"type": "mouseMoved", "x": x, "y": y}, method="Input.dispatchMouseEvent")
        pressed = [{"type": f"mouse{kind}", "x": x, "y": y, "button": "left", "clickCount": 1} for kind in _BUTTON]
        self._input(*pressed, method="Input.dispatchMouseEvent")

    def _type(self, text: str) -> None:
        keys: list[dict[str, Any]] = []
        for character in text:
            known: dict[str, Any] = {"key": character}
            if character == "\n":
                known = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
            typed = "\r" if character == "\n" else character
            keys += [{"type": "keyDown", "text": typed, **known}, {"type": "keyUp", **known}]
        self._input(*keys, method="Input.dispatchKeyEvent")

    def _input(self, *events: dict[str, Any], method: str) -> None:
        """Send events together, and wait until the page has handled all."""
        for answer in [self.browser.send(method, self._session, **event) for event in events]:
            waited(answer, method)

    def _evaluate(self, expression: str) -> Any:
        found = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"].get("exception", {}).get("description", "")
            raise EnvironmentFailure(f"the page raised an error: {details[:300]}")
        return found["result"].get("value")

    def _call(self, method: str, **parameters: Any) -> Any:
        return self.browser.call(method, self._session, **parameters)


_BUTTON = ("Pressed", "Released")


def _point(found: Any) -> Point:
    x, y = found
    return float(x), float(y)


__all__ = ["Element", "Page", "State", "page_file", "pages"]
