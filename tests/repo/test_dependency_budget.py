"""What installing each distribution brings along, read from the lock: exactly this, nothing by accident."""

from __future__ import annotations

import pytest
from workspace import closure, members

CORE = frozenset(
    {"pluggy", "pydantic", "click", "rich", "packaging"}
    | {"annotated-types", "pydantic-core", "typing-extensions", "typing-inspection"}  # of pydantic
    | {"markdown-it-py", "mdurl", "pygments"}  # of rich
)
TOKENIZERS = frozenset(
    {"tokenizers", "huggingface-hub", "filelock", "fsspec", "hf-xet", "pyyaml", "tqdm"}
    | {"httpx2", "httpcore2", "anyio", "h11", "idna", "truststore"}
)
TORCH = frozenset(
    {"torch", "numpy", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "setuptools"}
    | {"transformers", "safetensors", "regex", "typer", "shellingham", "annotated-doc"}
)

BUDGET = {
    "rlcore": CORE | TOKENIZERS | TORCH | {"accelerate", "psutil", "ml-dtypes", "threadpoolctl"},
    "rlcore-core": CORE,
    "rlcore-rollout": CORE | TOKENIZERS,
    "rlcore-trainer": CORE | TOKENIZERS | TORCH | {"accelerate", "psutil"},
    "rlcore-merge": CORE | {"numpy", "ml-dtypes", "threadpoolctl"},
    "rl-plugin-gsm8k-tools": CORE,
    "rl-plugin-string-equal": CORE,
}
"""Third-party distributions by member. A new one needs a reason and a line here."""

OF_TORCH = ("nvidia-", "cuda-", "triton")
"""Torch's own libraries for a GPU, whose names change with its version; they count as torch."""


def third_party(name: str) -> frozenset[str]:
    ours = {member.name for member in members()}
    brought = closure(name) - ours
    return frozenset(each for each in brought if not ("torch" in brought and each.startswith(OF_TORCH)))


@pytest.mark.parametrize("name", [member.name for member in members()])
def test_a_member_brings_what_its_budget_says(name: str) -> None:
    assert name in BUDGET, f"{name} has no dependency budget: add what it may bring to BUDGET in {__file__}"
    brought = third_party(name)
    assert sorted(brought - BUDGET[name]) == [], f"{name} brings more than its budget"
    assert sorted(BUDGET[name] - brought) == [], f"{name} no longer brings these: take them out of its budget"


def test_the_budget_names_members_only() -> None:
    assert set(BUDGET) <= {member.name for member in members()}


def test_the_core_and_the_plugins_are_light() -> None:
    heavy = {"torch", "numpy", "transformers", "tokenizers", "accelerate", "ray", "vllm"}
    light = [member.name for member in members() if member.name.startswith("rl-plugin-")] + ["rlcore-core"]
    assert {name: closure(name) & heavy for name in light if closure(name) & heavy} == {}
