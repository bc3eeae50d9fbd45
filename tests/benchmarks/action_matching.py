"""100,000 pairs of actions on screens with 20 elements, by the official matching of AITW, against one second.

The time includes the conversion of the actions and boxes from Python objects. Every second pair is two taps. A sample
is compared with the result for one pair at a time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from comparison import Comparison
from rl_plugin_aitw.scoring import match_all
from rlcore_gui.actions import Action
from rlcore_gui.steps import GuiStep

VERSIONS = ("rl-plugin-aitw", "numpy")
PAIRS, SMOKE_PAIRS, BOXES = 100_000, 500, 20
SAMPLE = 200
OTHERS = ("SCROLL UP", "SCROLL DOWN", "SCROLL LEFT", "SCROLL RIGHT", "PRESS BACK", "PRESS HOME", "TYPE")


def random_action(numbers: random.Random) -> Action:
    """A tap in three of four cases."""
    if numbers.random() < 0.75:
        return Action(name="CLICK", position=(numbers.random(), numbers.random()))
    name = numbers.choice(OTHERS)
    return Action(name=name, value="text" if name == "TYPE" else None)


def random_step(numbers: random.Random) -> GuiStep:
    """A recorded action, with its touch and lift, on a screen with random elements."""
    action = random_action(numbers)
    boxes = [(numbers.random(), numbers.random(), 0.05, 0.2 * numbers.random()) for _ in range(BOXES)]
    return GuiStep(
        row_id="1",
        episode_id="1",
        step_index=0,
        group="general",
        task="Open it",
        image=None,
        image_size=None,
        action=action,
        boxes=tuple(boxes),
        source={"touch": action.position, "lift": action.position} if action.position else {},
    )


def measured(count: int) -> Callable[[], float]:
    """One call with this number of pairs."""
    numbers = random.Random(0)
    actions = [random_action(numbers) for _ in range(count)]
    steps = [random_step(numbers) for _ in range(count)]
    alone = [match_all([action], [step])[0] for action, step in zip(actions[:SAMPLE], steps[:SAMPLE], strict=True)]

    def once() -> float:
        start = time.perf_counter()
        matches = match_all(actions, steps)
        elapsed = time.perf_counter() - start
        assert len(matches) == count
        assert matches[:SAMPLE] == alone
        return elapsed

    return once


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """The time against one second."""
    return [Comparison(name="aitw", ours=measured(SMOKE_PAIRS if smoke else PAIRS), peer=1.0, floor=1.0)]
