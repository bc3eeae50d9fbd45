"""The first test is all that a plugin needs; the second is about this one's data."""

from rl_plugin_warehouse.questions import Questions
from rlcore.testing import check_plugin


def test_the_plugin_keeps_the_contracts():
    check_plugin("warehouse")


def test_held_out_questions_share_no_article_and_no_sentence_with_training():
    training, held_out = ([seen(task) for task in Questions().tasks(split)] for split in ("train", "evaluation"))
    for trained, tried in zip(zip(*training, strict=True), zip(*held_out, strict=True), strict=True):
        assert not set(trained) & set(tried)


def seen(task):
    article = str(task.fields["article"])
    return article, task.messages[0].text.replace(article, "N")
