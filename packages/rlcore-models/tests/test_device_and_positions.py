"""The device of a model, and the positions of visual tokens."""

from __future__ import annotations

import pytest
from rlcore.errors import UserError
from rlcore.types import MediaSpan
from rlcore_models.device import device_name
from rlcore_models.positions import rotary_positions


@pytest.mark.parametrize(
    ("wanted", "gpus", "name"),
    [("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cpu", 2, "cpu"), ("cuda", 1, "cuda"), ("cuda:1", 2, "cuda:1")],
)
def test_device_is_one_of_the_machine(wanted: str, gpus: int, name: str) -> None:
    assert device_name(wanted, gpus=gpus) == name


@pytest.mark.parametrize(("wanted", "gpus"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2), ("cuda:999", 8)])
def test_device_that_the_machine_lacks_is_rejected(wanted: str, gpus: int) -> None:
    with pytest.raises(UserError) as raised:
        device_name(wanted, gpus=gpus)
    assert raised.value.where == wanted


def test_rotary_positions_of_a_short_sequence() -> None:
    media = [MediaSpan(sha256="0" * 64, offset=2, length=6, rows=2, columns=3)]
    temporal, vertical, horizontal = rotary_positions(10, media)
    assert list(temporal) == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6]
    assert list(vertical) == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6]
    assert list(horizontal) == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6]
    assert all(list(axis) == [0, 1, 2, 3][:4] for axis in rotary_positions(4, []))
