"""What follows from a loss follows from another one anew when a run goes on with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore.config.layers import file_layer, override_layers, values_layer
from rlcore.config.resolve import Resolved, resolve
from rlcore.registry import Registry

BASE = {
    "model": {"path": "builtin:tiny-qwen2"},
    "environment": {"id": "gsm8k-tools"},
    "reward": [{"id": "math-numeric-equal"}],
}


def resolved(registry: Registry, *overrides: str, written: str | None = None) -> Resolved:
    """A new run with these overrides, or one that goes on from what another has written."""
    base = values_layer(BASE, "test") if written is None else file_layer(Path("config.toml"), text=written)
    return resolve([base, *override_layers(overrides)], registry)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("", "algorithm.loss=cispo"),
        ("", "algorithm.loss=sapo"),
        ("", "algorithm.importance_sampling_level=sequence"),
        ("algorithm.loss=gspo", "algorithm.loss=clip"),
        ("algorithm.importance_sampling_level=sequence", "algorithm.importance_sampling_level=token"),
        ("algorithm.clip_high=0.28", "algorithm.loss=cispo"),
        ("algorithm.aggregation=token-mean", "algorithm.loss=gspo"),
    ],
)
def test_another_loss_at_a_resume_is_resolved_as_in_a_new_run(first: str, then: str) -> None:
    registry = Registry()
    before, after = ([first] if first else []), [then]
    written = resolved(registry, *before).text()
    found = resolved(registry, *after, written=written)
    expected = resolved(registry, *before, *after)
    assert found.options["algorithm"] == expected.options["algorithm"]
    again = resolved(registry, written=found.text())
    assert again.tree() == expected.tree()


def test_what_follows_from_the_loss_is_a_comment_and_what_was_asked_is_not() -> None:
    lines = resolved(Registry(), "algorithm.loss=gspo", "algorithm.clip_low=0.1").text().splitlines()
    assert [line.split("#")[0].strip() for line in lines if line.startswith(("loss =", "clip_low ="))] == [
        'loss = "gspo"',
        "clip_low = 0.1",
    ]
    assert any(line.startswith("# clip_high = 0.0004 ") for line in lines)
