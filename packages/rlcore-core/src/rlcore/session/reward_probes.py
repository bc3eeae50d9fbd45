"""Ask the services of rewards once, for ``rlcore doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from rlcore.checks import Finding, findings_of
from rlcore.config.layers import Layer
from rlcore.config.resolve import resolve, resolve_rewards
from rlcore.config.schema import RewardTable, Table
from rlcore.errors import UserError
from rlcore.plugin_calls import error_text, plugin_code
from rlcore.plugins.loading import load_attribute
from rlcore.plugins.registry import Registry
from rlcore.specs import RewardSpec


def probe_plugin(
    registry: Registry, plugin: str, overrides: Sequence[Layer] = ()
) -> Iterator[tuple[str, Finding]] | None:
    """The findings about the rewards of a plugin without recipes that ask services; None for other plugins.

    Raises:
        UserError: there is no such plugin, or an override is invalid.
    """
    loaded = registry.plugin(plugin)
    if any(offer.plugin.name == loaded.name for offer in registry.offers("recipe")):
        return None
    specs = [offer.spec for offer in registry.offers("reward") if offer.plugin.name == loaded.name]
    tables = [{"id": spec.id} for spec in specs if isinstance(spec, RewardSpec) and spec.probe]
    if not tables:
        return None
    plan = resolve_rewards([Layer(tree={"reward": tables}, origins={}), *overrides], registry, Table)
    return reward_findings(registry, *plan.environments[""])


def probe_recipe(registry: Registry, name: str, layers: Sequence[Layer]) -> Iterator[tuple[str, Finding]]:
    """The findings about the rewards of a recipe that ask services."""
    try:
        run = resolve(layers, registry, recipe=name)
    except UserError:  # a finding of the recipe says so
        return
    yield from reward_findings(registry, run.config.reward, run.reward_options)
    for environment in run.environments:
        if environment.name:
            yield from reward_findings(registry, environment.rewards, environment.reward_options)


def reward_findings(
    registry: Registry, tables: Sequence[RewardTable], options: Sequence[BaseModel | None]
) -> Iterator[tuple[str, Finding]]:
    """Ask the services of rewards once; yields pairs of reward id and finding."""
    for table, own in zip(tables, options, strict=True):
        spec = registry.spec("reward", table.id)
        if not isinstance(spec, RewardSpec) or spec.probe is None or table.servers:
            continue
        what = f"the probe of {registry.named('reward', table.id)}"
        try:
            probe = load_attribute(spec.probe, what=what)
            with plugin_code(""):  # a service may take its time
                found = findings_of(probe(own))
        except Exception as error:
            found = [Finding(status="fail", text=f"{what} failed: {error_text(error)}")]
        yield from ((table.id, finding) for finding in found)
