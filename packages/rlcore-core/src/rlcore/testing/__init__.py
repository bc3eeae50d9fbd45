"""The conformance suite: what every environment, reward and plugin must keep, as one line of a plugin's tests.

::

    from rlcore.testing import check_plugin

    def test_the_plugin_keeps_the_contracts():
        check_plugin("gsm8k-tools")

Each check raises one `AssertionError` that lists every broken promise as a sentence. Nothing here needs a model, an
engine or torch.
"""

from rlcore.testing.environments import check_environment
from rlcore.testing.plugin import check_plugin
from rlcore.testing.rewards import RewardCase, check_reward
from rlcore.testing.trajectories import make_trajectory

__all__ = ["RewardCase", "check_environment", "check_plugin", "check_reward", "make_trajectory"]
