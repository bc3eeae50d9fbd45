"""The order of test files in a run, and the fixtures of the pretrained model."""

from __future__ import annotations

import os

import pytest
from real_model import smollm2 as smollm2
from real_model import smollm2_bf16 as smollm2_bf16
from real_model import smollm2_gguf as smollm2_gguf

os.environ.pop("UV_RUN_RECURSION_DEPTH", None)  # messages name commands as without uv

LONGEST = (
    *("test_visual_search_learns.py", "test_gsm8k_learns.py", "test_visual_cot_learns.py", "test_gui_learns.py"),
    *("test_smoke.py", "test_vllm_engine.py", "test_several_processes.py", "test_docs.py"),
    *("test_sft_then_grpo.py", "test_vllm_learns.py", "test_third_party.py", "test_killed.py"),
    *("test_vllm_images.py", "test_vllm_adapter.py", "test_evaluate_an_endpoint.py"),
)
"""Files of slow tests, longest first, so that no worker is left with a long test at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
