"""The network interfaces of this machine."""

from __future__ import annotations


def interface_of(address: str) -> str | None:
    """Return the interface with this address; None for the address of another machine.

    gloo would use the interface of the host name, which is often a loopback.
    """
    import psutil

    interfaces = psutil.net_if_addrs().items()
    return next((name for name, found in interfaces if any(one.address == address for one in found)), None)
