"""The hook implementations of this plugin."""

from __future__ import annotations

from rlcore_gui.plugin import RecordedScreens

_SCREENS = RecordedScreens(
    id="aitw",
    package="rl_plugin_aitw",
    environment="Recorded phone screens: one step, or an episode with the agent's own summaries as memory.",
    dataset="Recorded episodes on Android phones (AITW), from prepared files, or drawn phone screens.",
    reward="The strict match of the action, and the grammar of the answer.",
    action="1 if the action matches officially, else 0.",
    legacy_maximum=1.3125,
)

rlcore_specs = _SCREENS.specs
rlcore_rollouts_scored = _SCREENS.rlcore_rollouts_scored
rlcore_turn_notes = _SCREENS.rlcore_turn_notes
