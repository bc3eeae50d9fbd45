"""The components of rlcore-control, registered with the same hooks as those of any plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.hookspecs import hookimpl
from rlcore.specs import ModelBuilderSpec, PolicySpec, RewardSpec, SamplerSpec

if TYPE_CHECKING:
    import pluggy


@hookimpl
def rlcore_addhooks(pluginmanager: pluggy.PluginManager) -> None:
    """Register the hooks of this package."""
    from rlcore_control import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


rlcore_specs = [
    PolicySpec(
        id="control",
        target="rlcore_control.policy:ControlPolicy",
        action="control",
        warm_up="rlcore_control.cloning:clone",
        summary="A model of continuous actions.",
    ),
    SamplerSpec(
        id="control",
        target="rlcore_control.sampler:ControlSampler",
        config="rlcore_control.config:ControlSamplerConfig",
        summary="Runs control environments with a policy of continuous actions.",
        actions=frozenset({"control"}),
    ),
    RewardSpec(
        id="control-return",
        target="rlcore_control.rewards:episode_return",
        summary="The sum of the rewards of a control environment.",
        minimum=-float("inf"),
        maximum=float("inf"),
        rewards_silence=True,
    ),
    RewardSpec(
        id="control-success",
        target="rlcore_control.rewards:success",
        summary="1 for an episode at whose end the control environment reports success.",
        rewards_silence=True,
    ),
    ModelBuilderSpec(
        id="tiny-vla",
        target="rlcore_control.building:build_tiny_vla",
        config="rlcore_control.models.config:TinyVLAConfig",
        summary="Vision-language-action model with about 0.1 million parameters, for continuous actions.",
    ),
]
