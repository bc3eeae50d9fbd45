"""The conformance suite for environments, rewards, engines, sandboxes and plugins. A plugin's tests need one line.

::

    from rlcore.testing import check_plugin

    def test_plugin_conforms():
        check_plugin("gsm8k-tools")

Each check raises a single `AssertionError` that lists every violation as a sentence. No model, engine or torch is
needed.
"""

from rlcore.testing.engines import check_engine
from rlcore.testing.environments import check_environment
from rlcore.testing.hostile import hostile_images
from rlcore.testing.plugin import check_plugin
from rlcore.testing.rewards import RewardCase, check_reward
from rlcore.testing.sandboxes import check_sandbox
from rlcore.testing.trajectories import make_trajectory

__all__ = [
    "RewardCase",
    "check_engine",
    "check_environment",
    "check_plugin",
    "check_reward",
    "check_sandbox",
    "hostile_images",
    "make_trajectory",
]
