"""What ``rlcore doctor`` finds about the robots: the simulator, a renderer, a RoboTwin checkout."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Iterator

from packaging.version import Version
from rlcore.checks import Finding
from rlcore.errors import NotInstalledError, UserError
from rlcore.plugins.loading import pip_line

from rl_plugin_robotwin.robotwin_checkout.checkout import HOW_TO_GET, VARIABLE, find_checkout
from rl_plugin_robotwin.simulation.rendering import HOW_TO_GET_VULKAN, device_of, probe

OLDEST = Version("3.0.3")
"""SAPIEN 3.0.0 has physics, but draws nothing on a CPU."""
INSTALL = pip_line(["rl-plugin-robotwin[sapien]"])


def robots() -> Iterator[Finding]:
    """Check what the environments need."""
    if importlib.util.find_spec("sapien") is None:
        where = "" if platform.system() == "Linux" else f"; it has no package for {platform.system()}"
        yield Finding(status="warn", text=f"SAPIEN, the simulator of the robots, is not installed{where}", fix=INSTALL)
    else:
        found = importlib.metadata.version("sapien")
        if Version(found) < OLDEST:
            yield Finding(status="warn", text=f"SAPIEN {found} does not draw on a CPU", fix=f"{INSTALL} --upgrade")
        else:
            try:
                importlib.import_module("rl_plugin_robotwin.simulation.simulator")
            except NotInstalledError as error:
                yield Finding(status="warn", text=f"{error.message}: {error.found}", fix=error.fix or INSTALL)
            else:
                yield Finding(status="ok", text=f"SAPIEN {found}: physics runs without a Vulkan driver")
                yield _renderer()
    yield _checkout(os.environ.get(VARIABLE, ""))


def _renderer() -> Finding:
    """Whether a picture can be drawn."""
    device = device_of()
    found = probe("trivial", device)
    if found.works:
        return Finding(status="ok", text=f"pictures are drawn by {found.text}")
    text = f"no pictures can be drawn on {device}, only states observed: {found.text}"
    return Finding(status="warn", text=text, fix=HOW_TO_GET_VULKAN)


def _checkout(folder: str) -> Finding:
    """Whether there is a RoboTwin checkout."""
    if not folder:
        text = f"no RoboTwin checkout ({VARIABLE} is not set): the bundled tasks need none"
        return Finding(status="ok", text=text)
    try:
        checkout = find_checkout(folder)
    except UserError as error:
        text = f"{VARIABLE}={folder} is not a RoboTwin checkout that can be used: {error.message}"
        return Finding(status="warn", text=f"{text}: {error.found}", fix=error.fix or HOW_TO_GET)
    assets = "" if checkout.has_objects else ", without its assets: four tasks need none"
    return Finding(status="ok", text=f"RoboTwin checkout: {folder}, version {checkout.version}{assets}")
