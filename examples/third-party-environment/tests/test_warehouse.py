"""Every plugin needs the first test. The second checks the data split of this plugin."""

from rl_plugin_warehouse.questions import Questions
from rlcore.testing import check_plugin


def test_plugin_passes_the_conformance_suite():
    check_plugin("warehouse")


def test_held_out_questions_do_not_overlap_with_training():
    training, held_out = ([seen(task) for task in Questions().tasks(split)] for split in ("train", "evaluation"))
    for trained, tried in zip(zip(*training, strict=True), zip(*held_out, strict=True), strict=True):
        assert not set(trained) & set(tried)


def seen(task):
    article = str(task.fields["article"])
    return article, task.messages[0].text.replace(article, "N")
