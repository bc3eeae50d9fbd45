"""The zoom tool: one space of coordinates, and regions within their limits."""

from __future__ import annotations

import pytest
from rl_plugin_visual_search.zoom import BadRegion, Zoom, region, zoom_schema
from rlcore.images import image_size
from solid_pictures import opened, picture


def test_region_is_cut_out_of_the_picture_in_pixels() -> None:
    zoom = Zoom([picture(400, 300)], "pixels")
    image, what = zoom.crop({"bbox_2d": [0, 0, 100, 50], "label": "corner"})
    assert image_size(image) == (100, 50)
    assert opened(image).getpixel((0, 0)) == (255, 255, 255)
    assert opened(image).getpixel((1, 0)) == (200, 30, 30)
    assert "[0, 0, 100, 50] of picture 0, 100 x 50" in what


def test_thousandths_select_the_same_region_of_pictures_of_any_size() -> None:
    for width, height in ((400, 300), (4000, 3000)):
        box = region([250, 500, 750, 1000], (width, height), "thousandths")
        assert box == (width // 4, height // 2, 3 * width // 4, height)


def test_region_is_clamped_to_the_picture_and_contains_partial_pixels() -> None:
    assert region([-50, 10.6, 1e6, 90.2], (400, 300), "pixels") == (0, 10, 400, 91)


@pytest.mark.parametrize(
    ("corners", "size"),
    [
        ([0, 0, 30, 200], (400, 300)),
        ([0, 0, 200, 30], (400, 300)),
        ([100, 100, 50, 200], (400, 300)),
        ([500, 0, 600, 100], (400, 300)),
        ([0, 0, 5000, 40], (5000, 300)),
        ([0, 0, 100, 100], (20, 20)),
    ],
)
def test_small_empty_and_narrow_regions_are_errors(corners: list[float], size: tuple[int, int]) -> None:
    with pytest.raises(BadRegion, match=r"region"):
        region(corners, size, "pixels")
    assert region([0, 0, 31, 31], (400, 300), "pixels") == (0, 0, 31, 31)
    assert region([0, 0, 4000, 40], (5000, 300), "pixels") == (0, 0, 4000, 40)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"bbox": [0, 0, 100, 100]},
        {"bbox_2d": [0, 0, 100]},
        {"bbox_2d": [0, 0, 100, "__import__('os')"]},
        {"bbox_2d": "[0, 0, 100, 100]"},
        {"bbox_2d": [0, 0, float("nan"), 100]},
        {"bbox_2d": [0, 0, float("inf"), 100]},
        {"bbox_2d": [0, 0, True, 100]},
        {"bbox_2d": [0, 0, 100, 100], "image": 1},
        {"bbox_2d": [0, 0, 100, 100], "image": -1},
        {"bbox_2d": [0, 0, 100, 100], "image": "0"},
    ],
)
def test_other_arguments_are_errors_that_the_model_can_read(arguments: dict[str, object]) -> None:
    zoom = Zoom([picture(400, 300)], "pixels")
    with pytest.raises(BadRegion, match=r"bbox_2d must be|image must be"):
        zoom.crop(arguments)
    assert len(zoom) == 1


def test_region_is_the_next_picture_and_can_be_zoomed_in_again() -> None:
    zoom = Zoom([picture(400, 300), picture(200, 200)], "pixels")
    zoom.crop({"bbox_2d": [0, 0, 100, 100], "image": 1})
    again, what = zoom.crop({"bbox_2d": [50, 50, 300, 300], "image": 2})
    assert image_size(again) == (50, 50)
    assert "picture 2" in what
    assert len(zoom) == 4


def test_turned_photo_is_cut_as_it_is_shown() -> None:
    exif = opened(picture()).getexif()
    exif[0x0112] = 6
    zoom = Zoom([picture(400, 300, format="JPEG", exif=exif)], "pixels")
    image, _ = zoom.crop({"bbox_2d": [0, 0, 300, 400]})
    assert image_size(image) == (300, 400)


def test_schema_requires_what_the_tool_reads_and_states_the_space() -> None:
    schema = zoom_schema("thousandths").as_json()["function"]
    assert schema["parameters"]["required"] == ["bbox_2d"]
    assert "thousandths" in schema["parameters"]["properties"]["bbox_2d"]["description"]
    assert "pixels" in zoom_schema("pixels").parameters["properties"]["bbox_2d"]["description"]
