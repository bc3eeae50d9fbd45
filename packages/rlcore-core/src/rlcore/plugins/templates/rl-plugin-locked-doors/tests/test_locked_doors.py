"""The first test is the conformance suite, which every plugin needs. The second tests a promise of this data set."""

from rl_plugin_locked_doors.corridors import Corridors, CorridorsConfig
from rlcore.testing import check_plugin


def test_plugin_conforms() -> None:
    check_plugin("locked-doors")


def test_evaluation_uses_corridors_that_training_never_sees() -> None:
    corridors = Corridors(CorridorsConfig(doors=4))
    trained, evaluated = ({task.id for task in corridors.tasks(split)} for split in ("train", "evaluation"))
    assert trained
    assert evaluated
    assert not trained & evaluated
