"""The hook implementations of this plugin."""

from __future__ import annotations

from rlcore_gui.plugin import RecordedScreens

_SCREENS = RecordedScreens(
    id="mind2web",
    package="rl_plugin_mind2web",
    environment="Recorded web pages: one step, or an episode with the agent's own summaries as memory.",
    dataset="Recorded episodes on web pages (Mind2Web), from prepared files, or drawn web pages.",
    reward="The right element times the F1 of the operation, and the grammar of the answer.",
    action="1 if element and operation are right, else 0.",
    legacy_maximum=1.7,
)

rlcore_specs = _SCREENS.specs
rlcore_rollouts_scored = _SCREENS.rlcore_rollouts_scored
rlcore_turn_notes = _SCREENS.rlcore_turn_notes
