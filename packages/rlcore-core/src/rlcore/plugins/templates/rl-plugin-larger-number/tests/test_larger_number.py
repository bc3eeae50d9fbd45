"""The conformance suite, and the promises of this data set."""

from rl_plugin_larger_number.dataset import Pairs, PairsConfig
from rlcore.testing import check_plugin


def test_plugin_conforms() -> None:
    check_plugin("larger-number")


def test_splits_share_no_pair_and_have_all_of_them() -> None:
    pairs = Pairs(PairsConfig(largest=9))
    trained, evaluated = ({task.id for task in pairs.tasks(split)} for split in ("train", "evaluation"))
    assert not trained & evaluated
    assert len(trained | evaluated) == 90


def test_demonstrations_use_no_pair_of_the_evaluation() -> None:
    pairs = Pairs(PairsConfig())
    held_out = {task.messages[0].text for task in pairs.tasks("evaluation")}
    assert not held_out & {one.messages[0].text for one in pairs.demonstrations(200, seed=0)}
