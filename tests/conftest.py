"""The order of test files in a run, its slices, and the fixtures of the pretrained model."""

from __future__ import annotations

import os

import pytest
from real_model import smollm2 as smollm2
from real_model import smollm2_bf16 as smollm2_bf16
from real_model import smollm2_gguf as smollm2_gguf
from slices import SECONDS, slices

os.environ.pop("UV_RUN_RECURSION_DEPTH", None)  # messages name commands as without uv


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", metavar="K/N", help="run the K-th of N slices of the long tests")


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: -SECONDS.get(item.path.name, 0))
    if wanted := config.getoption("slice"):
        place, count = map(int, wanted.split("/"))
        names = {item.path.name for item in items if item.get_closest_marker("long")}
        chosen = slices(names, count)[place - 1]
        config.hook.pytest_deselected(items=[item for item in items if item.path.name not in chosen])
        items[:] = [item for item in items if item.path.name in chosen]
