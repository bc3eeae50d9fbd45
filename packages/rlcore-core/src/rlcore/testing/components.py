"""Makes components of plugins as a run does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlcore.registry import Registry, make


def component(registry: Registry, kind: str, id: str, options: Mapping[str, Any] | None) -> Callable[[], Any]:
    """A function that makes the component with these options, which its own model has validated."""
    target, model = registry.load(kind, id), registry.config_model(kind, id)
    if model is None:
        assert not options, f"the {kind} {id!r} takes no options, it was given {dict(options or {})}"
        return lambda: make(target, None)
    config = model.model_validate(dict(options or {}))
    return lambda: make(target, config)
