"""Choose the device of a model."""

from __future__ import annotations

from rlcore.errors import UserError


def device_name(wanted: str, *, gpus: int) -> str:
    """The device for a valid ``model.device``: ``cpu``, ``cuda`` or ``cuda:N``.

    Args:
        wanted: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``
        gpus: number of GPUs of this machine

    Raises:
        UserError: there is no such GPU.
    """
    if wanted == "auto":
        return "cuda" if gpus else "cpu"
    index = int(wanted.removeprefix("cuda").removeprefix(":") or 0) if wanted.startswith("cuda") else -1
    if index >= gpus:
        found = f"{gpus} CUDA devices" if gpus else "no CUDA device"
        raise UserError("model.device requires a GPU", found=found, where=wanted, fix="set model.device=auto")
    return wanted


__all__ = ["device_name"]
