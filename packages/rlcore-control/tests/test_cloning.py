"""Behaviour cloning of recorded episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rlcore.errors import DataError
from rlcore.types import NumberArray, RecordedEpisode

gymnasium = pytest.importorskip("gymnasium", reason="the extra control is not installed")

from control_environments import Counting  # noqa: E402
from rlcore_control.cloning import examples_of  # noqa: E402
from rlcore_control.models.config import TinyVLAConfig  # noqa: E402
from rlcore_control.models.observations import View  # noqa: E402
from rlcore_control.models.vla import create  # noqa: E402

VIEW = View.of(Counting().observation_space, Counting().action_space)
MODEL = create(VIEW.spaces, TinyVLAConfig(width=16, heads=2, layers=0, chunk=3, instruction_length=2), seed=0)


def recorded(steps: int, *, first: int = 0, width: int = 2, key: str = "state", text: str = "go") -> RecordedEpisode:
    rows = np.arange(first, first + steps, dtype=np.float32)
    return RecordedEpisode(
        observations={key: NumberArray.of(np.stack([rows] * 3, axis=1))},
        actions=NumberArray.of(np.stack([rows / 100] * width, axis=1)),
        instruction=text,
    )


def test_example_is_an_observation_with_the_actions_of_its_own_episode() -> None:
    examples = examples_of([recorded(4), recorded(2, first=10, text="stop")], VIEW, MODEL)
    observation, action_BHA, valid_BH = examples.batch(torch.tensor([1, 3, 4]), chunk=3)
    assert observation["state"][:, 0].tolist() == [1, 3, 10]
    assert (action_BHA[:, :, 0] * 100).round().tolist() == [[1, 2, 3], [3, 3, 3], [10, 11, 11]]
    assert valid_BH.tolist() == [[True] * 3, [True, False, False], [True, True, False]]
    assert observation["instruction"].tolist() == [MODEL.encode_instruction(t).tolist() for t in ("go", "go", "stop")]


@pytest.mark.parametrize(
    ("episodes", "found"),
    [
        ([], "none"),
        ([recorded(0)], "none"),
        ([recorded(2, key="other")], "other"),
        ([recorded(2, width=3)], "3 numbers"),
    ],
)
def test_unusable_recorded_episodes_are_reported(episodes: list[Any], found: str) -> None:
    with pytest.raises(DataError, match="recorded episode") as raised:
        examples_of(episodes, VIEW, MODEL)
    assert found in str(raised.value)
