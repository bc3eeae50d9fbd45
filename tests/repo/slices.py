"""Slices of the long tests, of about equal duration."""

from __future__ import annotations

from collections.abc import Iterable

SECONDS = {
    "test_visual_search_learns.py": 290,
    "test_gsm8k_learns.py": 190,
    "test_visual_cot_learns.py": 150,
    "test_gui_learns.py": 140,
    "test_smoke.py": 250,
    "test_vllm_engine.py": 150,
    "test_several_processes.py": 120,
    "test_docs.py": 300,
    "test_sft_then_grpo.py": 200,
    "test_vllm_learns.py": 100,
    "test_third_party.py": 180,
    "test_killed.py": 120,
    "test_robotwin_learns.py": 150,
    "test_visual_search_photos.py": 90,
}
"""Duration of the longest test files. They start first, so that no worker is left with a long test at the end, and the
slices are balanced with them."""
OTHERS = 5
"""Seconds of a file that is not listed."""
PACKAGES = 400
"""Seconds of one worker that the tests of each package alone take, which `.ci/run` adds to the first slice."""


def slices(names: Iterable[str], count: int) -> list[set[str]]:
    """Distribute files over slices of about equal duration."""
    found: list[set[str]] = [set() for _ in range(count)]
    loads = [PACKAGES, *[0] * (count - 1)]
    for name in sorted(names, key=lambda name: (-SECONDS.get(name, OTHERS), name)):
        least = loads.index(min(loads))
        found[least].add(name)
        loads[least] += SECONDS.get(name, OTHERS)
    return found
