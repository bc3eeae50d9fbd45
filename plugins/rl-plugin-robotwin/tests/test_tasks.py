"""Layouts, rules of success, instructions and randomisation of the bundled tasks. No scene is needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rl_plugin_robotwin.simulation.randomisation import RandomisationConfig, is_seen, vary
from rl_plugin_robotwin.tasks import TASKS, bundled
from rl_plugin_robotwin.tasks.handover import PAD
from rl_plugin_robotwin.tasks.instructions import ARMS, Phrases, block, fill
from rl_plugin_robotwin.tasks.layout import HALF, Box, Layout, scatter
from rl_plugin_robotwin.tasks.lift import HANDLE
from rl_plugin_robotwin.tasks.state import SIDES, Body, Measured, Tool
from rl_plugin_robotwin.tasks.task import features, instruction
from rlcore.errors import UserError

UPRIGHT = np.array([1.0, 0.0, 0.0, 0.0])
FAR = np.array([0.3, -0.3, 0.3])


def tool(position: np.ndarray | None = None, opening: float = 1.0) -> Tool:
    return Tool(position=FAR if position is None else np.asarray(position, float), rotation=UPRIGHT, opening=opening)


def measured(bodies: dict[str, tuple[float, ...]], **tools: Tool) -> Measured:
    return Measured(
        bodies={name: Body(position=np.array(at[:3]), rotation=UPRIGHT) for name, at in bodies.items()},
        tools={side: tools.get(side, tool()) for side in SIDES},
    )


def at_start(layout: Layout) -> Measured:
    turned = {box.name: np.array([np.cos(box.yaw / 2), 0, 0, np.sin(box.yaw / 2)]) for box in layout.boxes}
    bodies = {box.name: Body(position=np.array(box.position), rotation=turned[box.name]) for box in layout.boxes}
    return Measured(bodies=bodies, tools={side: tool() for side in SIDES})


@pytest.mark.parametrize("name", TASKS)
def test_layouts_repeat_differ_by_seed_and_never_begin_done(name: str) -> None:
    task = bundled(name)
    layouts = [task.layout(np.random.default_rng(seed)) for seed in range(200)]
    assert repr(task.layout(np.random.default_rng(7))) == repr(layouts[7])
    assert len({repr(layout) for layout in layouts}) == 200
    assert not any(task.success(at_start(layout), layout) for layout in layouts)
    sizes = {features(at_start(layout), layout).shape for layout in layouts}
    assert len(sizes) == 1


def test_yaws_and_tilts_are_measured_from_rotations() -> None:
    body = Body(position=FAR, rotation=np.array([np.cos(0.2), 0.0, 0.0, np.sin(0.2)]))
    assert body.yaw == pytest.approx(0.4)
    assert body.up == pytest.approx([0, 0, 1])
    lying = Body(position=FAR, rotation=np.array([np.cos(np.pi / 4), np.sin(np.pi / 4), 0.0, 0.0]))
    assert lying.up == pytest.approx([0, -1, 0])


def test_reach_needs_both_tools_at_their_own_targets() -> None:
    task = bundled("reach")
    layout = task.layout(np.random.default_rng(0))
    left, right = layout.targets["left"], layout.targets["right"]
    assert task.success(measured({}, left=tool(left + np.array([0.025, 0, 0])), right=tool(right)), layout)
    assert not task.success(measured({}, left=tool(left + np.array([0.04, 0, 0])), right=tool(right)), layout)
    assert not task.success(measured({}, left=tool(right), right=tool(left)), layout)


def test_stacks_count_only_in_place_and_released() -> None:
    task, layout = bundled("stack_two"), Layout()
    stacked = {"red": (0.0, 0.0, HALF), "green": (0.02, -0.02, 3 * HALF + 0.01)}
    assert task.success(measured(stacked), layout)
    assert not task.success(measured(stacked, right=tool(opening=0.3)), layout)
    assert not task.success(measured(stacked | {"green": (0.03, 0.0, 3 * HALF)}), layout)
    assert not task.success(measured(stacked | {"green": (0.0, 0.0, 3 * HALF + 0.02)}), layout)
    assert not task.success(measured({"red": stacked["green"], "green": stacked["red"]}), layout)


def test_rankings_need_the_order_a_row_and_open_grippers() -> None:
    task, layout = bundled("rank_three"), Layout()
    row = {"red": (-0.1, 0.0, HALF), "green": (0.0, 0.02, HALF), "blue": (0.1, 0.0, HALF)}
    assert task.success(measured(row), layout)
    assert not task.success(measured(row | {"red": row["blue"], "blue": row["red"]}), layout)
    assert not task.success(measured(row | {"blue": (0.14, 0.0, HALF)}), layout)
    assert not task.success(measured(row | {"green": (0.0, 0.04, HALF)}), layout)
    assert not task.success(measured(row | {"green": (0.0, 0.0, 4 * HALF)}), layout)
    assert not task.success(measured(row, left=tool(opening=0.2)), layout)


def test_a_lifted_bar_is_high_level_and_held_at_both_ends() -> None:
    task, layout = bundled("lift"), Layout()
    left, right = np.array([-HANDLE, 0.0, 0.12]), np.array([HANDLE, 0.0, 0.12])
    held = measured({"bar": (0.0, 0.0, 0.12)}, left=tool(left, 0.3), right=tool(right, 0.3))
    assert task.success(held, layout)
    assert not task.success(measured({"bar": (0.0, 0.0, 0.12)}, left=tool(left)), layout)
    low = measured({"bar": (0.0, 0.0, 0.09)}, left=tool(left), right=tool(right))
    assert not task.success(low, layout)
    tilted = Body(position=np.array([0.0, 0.0, 0.12]), rotation=np.array([np.cos(0.15), 0.0, -np.sin(0.15), 0.0]))
    ends = {"left": tool((-0.134, 0, 0.079)), "right": tool((0.134, 0, 0.161))}
    assert not task.success(Measured(bodies={"bar": tilted}, tools=ends), layout)


def test_a_handover_ends_on_the_pad_and_released() -> None:
    task = bundled("handover")
    layout = task.layout(np.random.default_rng(3))
    x, y, z = layout.targets["pad"]
    assert z == pytest.approx(2 * PAD[2] + 0.02)
    assert task.success(measured({"bar": (x + 0.02, y, z)}), layout)
    assert not task.success(measured({"bar": (x + 0.02, y, z)}, right=tool(opening=0.1)), layout)
    assert not task.success(measured({"bar": (x + 0.04, y, z)}), layout)
    assert not task.success(measured({"bar": (x, y, z + 0.05)}), layout)


@pytest.mark.parametrize("name", TASKS)
def test_instructions_repeat_and_no_wording_is_in_both_splits(name: str) -> None:
    task = bundled(name)
    layout = task.layout(np.random.default_rng(0))
    drawn = {
        split: {instruction(task, layout, np.random.default_rng(seed), split=split) for seed in range(300)}
        for split in ("seen", "unseen")
    }
    assert instruction(task, layout, np.random.default_rng(4)) == instruction(task, layout, np.random.default_rng(4))
    assert not drawn["seen"] & drawn["unseen"]
    assert len(drawn["seen"]) >= 8
    assert len(drawn["unseen"]) >= 3
    assert not any("{" in text or "the the" in text for text in drawn["seen"] | drawn["unseen"])


def test_instructions_name_the_arm_on_the_side_of_the_block() -> None:
    task = bundled("stack_two")
    for seed in range(20):
        layout = task.layout(np.random.default_rng(seed))
        named = task.phrases(layout)["a"]
        assert named is ARMS["left" if layout.box("green").position[0] < 0 else "right"]


def test_unknown_slots_splits_and_tasks_are_explained() -> None:
    rng = np.random.default_rng(0)
    templates = Phrases(seen=("lift {Z}",), unseen=("raise {A}",))
    with pytest.raises(UserError, match="unknown slot"):
        fill(templates, {"A": block("red")}, split="seen", generator=rng)
    with pytest.raises(UserError, match="unknown split"):
        fill(templates, {"A": block("red")}, split="test", generator=rng)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="unknown bundled task") as caught:
        bundled("stack_tow")
    assert "stack_two" in str(caught.value)


def test_nothing_varies_without_randomisation() -> None:
    layout = bundled("stack_two").layout(np.random.default_rng(0))
    first, second = (
        vary(RandomisationConfig(), layout, np.random.default_rng(seed), split="seen") for seed in range(2)
    )
    assert first == second
    assert first.clutter == ()
    assert first.table_drop == 0


def test_each_key_varies_only_what_it_names() -> None:
    layout = bundled("stack_two").layout(np.random.default_rng(0))
    none = RandomisationConfig()
    everything = RandomisationConfig(
        random_background=True,
        cluttered_table=True,
        clean_background_rate=0.0,
        random_head_camera_dis=0.05,
        random_table_height=0.03,
        random_light=True,
    )
    both = vary(everything, layout, np.random.default_rng(1), split="seen")
    plain = vary(none, layout, np.random.default_rng(1), split="seen")
    lit = vary(none.model_copy(update={"random_light": True}), layout, np.random.default_rng(1), split="seen")
    lights = {"ambient": both.ambient, "light_colour": both.light_colour, "light_direction": both.light_direction}
    assert lit == replace(plain, **lights)  # type: ignore[arg-type]
    assert 0 < both.table_drop <= 0.03
    assert 0 < max(map(abs, both.camera_offset)) <= 0.05
    assert both.table_colour != plain.table_colour
    assert both.clutter


def test_looks_of_training_and_evaluation_are_disjoint() -> None:
    config = RandomisationConfig(random_background=True, cluttered_table=True, clean_background_rate=0.0)
    layout = Layout(boxes=(Box(name="red", half_size=(HALF,) * 3, position=(0, 0, HALF)),))
    for seed in range(30):
        seen = vary(config, layout, np.random.default_rng(seed), split="seen")
        unseen = vary(config, layout, np.random.default_rng(seed), split="unseen")
        assert is_seen(seen.table_colour)
        assert is_seen(seen.wall_colour)
        assert not is_seen(unseen.table_colour)
        assert not is_seen(unseen.wall_colour)
        assert all(is_seen(box.colour) for box in seen.clutter)
        assert not any(is_seen(box.colour) for box in unseen.clutter)


def test_the_clean_rate_keeps_that_share_of_backgrounds() -> None:
    config = RandomisationConfig(random_background=True, clean_background_rate=0.25)
    plain = vary(RandomisationConfig(), Layout(), np.random.default_rng(0), split="seen").table_colour
    drawn = [vary(config, Layout(), np.random.default_rng(seed), split="seen").table_colour for seed in range(400)]
    assert 0.18 < sum(colour == plain for colour in drawn) / 400 < 0.32


@pytest.mark.parametrize("name", TASKS)
def test_clutter_keeps_away_from_blocks_and_targets(name: str) -> None:
    task, config = bundled(name), RandomisationConfig(cluttered_table=True)
    for seed in range(30):
        layout = task.layout(np.random.default_rng(seed))
        clutter = vary(config, layout, np.random.default_rng(seed), split="seen").clutter
        assert len(clutter) <= 10
        for box in clutter:
            for other in layout.boxes:
                assert np.linalg.norm(np.subtract(box.position, other.position)[:2]) > 0.15


def test_blocks_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="no place for 4 blocks"):
        scatter(np.random.default_rng(0), 4, low=(0, 0), high=(0.1, 0.1), apart=0.2)
