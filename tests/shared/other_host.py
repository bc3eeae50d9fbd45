"""A host beside this one, in a network namespace."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Sequence


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class OtherHost:
    """A network namespace that is connected to this one.

    Attributes:
        near: the address of this host in the network of both
        address: that of the other host
    """

    def __init__(self) -> None:
        number = secrets.randbelow(2**14)
        self.name, self._here, self._there = f"rlcore-{number}", f"rlh{number}", f"rlt{number}"
        network = f"10.231.{number // 64}.{4 * (number % 64)}"
        stem, _, last = network.rpartition(".")
        self.near, self.address = f"{stem}.{int(last) + 1}", f"{stem}.{int(last) + 2}"
        ip("netns", "add", self.name)
        ip("link", "add", self._here, "type", "veth", "peer", "name", self._there, "netns", self.name)
        ip("address", "add", f"{self.near}/30", "dev", self._here)
        ip("-n", self.name, "address", "add", f"{self.address}/30", "dev", self._there)
        ip("link", "set", self._here, "up")
        ip("-n", self.name, "link", "set", "lo", "up")
        self.connect()

    @property
    def inside(self) -> Sequence[str]:
        """The beginning of a command that runs there."""
        return "ip", "netns", "exec", self.name

    def connect(self) -> None:
        ip("-n", self.name, "link", "set", self._there, "up")

    def cut(self) -> None:
        ip("-n", self.name, "link", "set", self._there, "down")

    def remove(self) -> None:
        ip("netns", "delete", self.name)
