"""The plan of a run: a value that can be pickled, copied and sent to another process."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlcore.config.layers import Layer, values_layer
from rlcore.config.origins import KeyPath
from rlcore.config.resolve import Purpose, resolve
from rlcore.config.resolved import Resolved
from rlcore.config.schema import RunConfig
from rlcore.plugins.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A resolved configuration, its purpose, and the checkpoint from which it starts.

    A plan has no open files, components or registry. It is pickled as plain data. Unpickling resolves the values again
    with the plugins of the other process, which imports components from files again.
    """

    resolved: Resolved
    """The validated configuration with the origin of each value."""
    purpose: Purpose = "run"
    resume_from: Path | None = None
    """Folder of the checkpoint to continue from."""

    @classmethod
    def of(cls, values: Mapping[str, Any], *, registry: Registry | None = None, purpose: Purpose = "run") -> RunPlan:
        """Create a plan from plain values, such as ``{"model": {"path": …}, "environment": {"id": …}, …}``.

        Raises:
            ConfigError: lists every error in the values.
        """
        resolved = resolve([values_layer(values, "values")], registry or Registry(), purpose=purpose)
        return cls(resolved=resolved, purpose=purpose)

    @property
    def config(self) -> RunConfig:
        """The tables that rlcore itself reads."""
        return self.resolved.config

    @property
    def recipe(self) -> str:
        """Id or file of the recipe; empty without a recipe."""
        return self.resolved.recipe

    def options(self, table: str) -> Any:
        """The component's own validated pydantic model; None for a component that takes no options.

        Tables: ``environment``, ``data``, ``trainer``, ``strategy``, ``sampler``, ``engine`` (``rollout.<engine>``),
        ``builder`` and the additional tables of the trainer, such as ``algorithm`` and ``warmup``.
        """
        return self.resolved.options[table]

    def resuming(self, checkpoint: Path | None) -> RunPlan:
        """The same plan from another checkpoint, or from the start."""
        return replace(self, resume_from=checkpoint)

    def __deepcopy__(self, memo: dict[int, Any]) -> RunPlan:
        return replace(self, resolved=copy.deepcopy(self.resolved, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        known = self.resolved
        return _restored, (known.given, known.origins, known.recipe, self.purpose, self.resume_from)


def _restored(
    given: Mapping[str, Any],
    origins: Mapping[KeyPath, str],
    recipe: str,
    purpose: Purpose,
    resume_from: Path | None,
) -> RunPlan:
    layer = Layer(tree=given, origins=origins)
    resolved = resolve([layer], Registry(), recipe=recipe, purpose=purpose)
    return RunPlan(resolved=replace(resolved, origins=origins), purpose=purpose, resume_from=resume_from)
