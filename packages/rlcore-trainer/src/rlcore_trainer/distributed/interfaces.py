"""The network interfaces of this machine."""

from __future__ import annotations

import os


def interface_of(address: str) -> str | None:
    """Return the interface with this address; None for the address of another machine."""
    import psutil

    interfaces = psutil.net_if_addrs().items()
    return next((name for name, found in interfaces if any(one.address == address for one in found)), None)


def interface_variables(address: str) -> dict[str, str]:
    """Return variables with which gloo and NCCL use the interface of this address, unless they are set here.

    gloo would use the interface of the host name, which is often a loopback.
    """
    if (interface := interface_of(address)) is None:
        return {}
    return {name: interface for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if name not in os.environ}
