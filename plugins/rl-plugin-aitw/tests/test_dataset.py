"""Tasks, demonstrations and texts from prepared files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_episodes import aitw_step, label, write_aitw, write_labels
from rl_plugin_aitw.actions import ACTIONS
from rl_plugin_aitw.dataset import Data, PrepareConfig, prepare
from rlcore.errors import DataError
from rlcore.types import media_hash
from rlcore_gui.answers import parse
from rlcore_gui.drawn.dataset import DrawnDataConfig
from rlcore_gui.steps import steps_of
from rlcore_gui.tasks import GuiTask

BACK = {"action_type_id": 5, "action_type_text": "press back"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two episodes with labels: ``a`` with four steps, the second of which has no screenshot, and ``b`` with one."""
    steps = [aitw_step("a", 0), aitw_step("a", 1, **BACK), aitw_step("a", 2), aitw_step("a", 3)]
    write_aitw(tmp_path, {"general": [steps], "single": [[aitw_step("b", 0)]]}, missing=["a/a_1"])
    write_labels(tmp_path, [label("a", index, f"summary {index}") for index in range(3)])
    return tmp_path


def dataset(folder: Path, *, labels: bool = True, **changes: Any) -> Data:
    """The dataset of the episodes in a folder, prepared with or without their labels."""
    prepare(
        PrepareConfig(
            source=[str(folder / "data.json")],
            images=str(folder / "images"),
            labels=str(folder / "labels.jsonl") if labels else None,
            memory=labels,
            out=str(folder / "train.parquet"),
            overwrite=True,
        )
    )
    return Data(DrawnDataConfig(**{"train": str(folder / "train.parquet"), **changes}))


def test_tasks_are_single_steps_with_the_screenshot_and_the_earlier_actions(folder: Path) -> None:
    data = dataset(folder)
    tasks = data.tasks("train")
    assert [task.id for task in tasks] == ["aitw/a/0", "aitw/a/2", "aitw/a/3", "aitw/b/0"]
    assert data.skipped("train") == 1
    text = tasks[1].messages[0].text
    click, back = (
        ACTIONS.render(action) for action in (steps_of(tasks[0])[0].action, ACTIONS.parse('{"action": "PRESS BACK"}'))
    )
    assert text.endswith(f'Task: open "Clock"\nHistory summary: Step 1: {click} Step 2: {back}')
    assert tasks[0].messages[0].text.endswith("History summary: none")
    image = (folder / "images/a/a_2.png").read_bytes()
    assert tasks[1].images == (image,)
    assert tasks[1].messages[0].images == (media_hash(image),)
    (step,) = steps_of(tasks[1])
    assert (step.row_id, step.step_index, step.next_row_id) == ("aitw/a/2", 2, "aitw/a/3")


def test_split_without_files_has_no_tasks(folder: Path) -> None:
    data = dataset(folder)
    assert data.tasks("evaluation") == data.conversations("evaluation") == []
    assert len(data.conversations("train")) == 2


def test_memory_is_chosen_by_one_key(folder: Path) -> None:
    dataset(folder)

    def histories(**changes: Any) -> list[str]:
        tasks = Data(DrawnDataConfig(train=[str(folder / "train.parquet")], **changes)).tasks("train")
        return [task.messages[0].text.rpartition("History summary: ")[2] for task in tasks]

    assert histories(memory="oracle") == ["none", "summary 1", "summary 2", "none"]
    assert histories(memory="none") == ["none"] * 4
    assert [text[:7] for text in histories(history=1)] == ["none", "Step 2:", "Step 3:", "none"]


def test_recorded_action_without_a_position_stays_in_the_history(tmp_path: Path) -> None:
    off = aitw_step("a", 0, touch=[-1, -1], lift=[-1, -1])
    write_aitw(tmp_path, {"general": [[off, aitw_step("a", 1)]]})
    (task,) = dataset(tmp_path, labels=False).tasks("train")
    assert 'Step 1: {"action": "CLICK", "value": null, "position": null}' in task.messages[0].text


def test_oracle_memory_without_summaries_is_an_error(folder: Path) -> None:
    dataset(folder, labels=False)
    data = Data(DrawnDataConfig(train=[str(folder / "train.parquet")], memory="oracle"))
    with pytest.raises(DataError, match="summaries of a teacher"):
        data.tasks("train")


def test_task_can_be_a_whole_episode(folder: Path) -> None:
    first, second = dataset(folder, episodes=True).tasks("train")
    assert (first.id, second.id) == ("a", "b")
    task = GuiTask.of(first)
    assert [step.row_id for step in task.steps] == ["aitw/a/0", "aitw/a/2", "aitw/a/3"]
    assert (task.memory, len(first.images)) == ("own", 3)


def test_next_step_is_never_of_another_episode(folder: Path) -> None:
    tasks = [GuiTask.of(task) for task in dataset(folder, next_step=True).tasks("train")]
    assert [task.next_step and task.next_step.row_id for task in tasks] == ["aitw/a/2", "aitw/a/3", None, None]
    assert [len(task.images) for task in tasks] == [2, 2, 1, 1]


def test_demonstrations_are_answers_with_the_labels(folder: Path) -> None:
    data = dataset(folder)
    conversations = data.conversations("train")
    assert [len(conversation.messages) for conversation in conversations] == [2, 2]
    answer = parse(conversations[1].messages[1].text, ACTIONS)
    assert (answer.strict, answer.summary) == (True, "summary 2")
    assert answer.action is not None
    assert answer.action.position == (0.5, 0.25)
    assert conversations[0].messages[0] == data.tasks("train")[0].messages[0]
    assert len(list(data.demonstrations(5, seed=0))) == 5
    assert list(data.demonstrations(5, seed=0)) == list(data.demonstrations(5, seed=0))
    assert any("summary 2" in text for text in data.texts())
    assert data.conversations("evaluation") == []


def test_demonstrations_without_labels_are_an_error(folder: Path) -> None:
    with pytest.raises(DataError, match="pseudo-labels"):
        dataset(folder, labels=False).demonstrations(1, seed=0)


def test_splits_with_the_same_episode_are_rejected(folder: Path) -> None:
    data = dataset(folder, evaluation=str(folder / "train.parquet"))
    data.tasks("train")
    with pytest.raises(DataError, match="same episodes"):
        data.tasks("evaluation")


def test_limit_counts_tasks(folder: Path) -> None:
    assert len(dataset(folder, limit=2).tasks("train")) == 2


def test_images_may_be_in_another_folder(folder: Path) -> None:
    dataset(folder)
    (folder / "images").rename(folder / "moved")
    config = DrawnDataConfig(train=[str(folder / "train.parquet")])
    with pytest.raises(DataError, match="cannot be read") as error:
        Data(config).tasks("train")
    assert "aitw/a/0" in str(error.value)
    moved = DrawnDataConfig(train=[str(folder / "train.parquet")], images=str(folder / "moved"))
    assert len(Data(moved).tasks("train")) == 4


@pytest.mark.parametrize(
    ("train", "message"),
    [("none.parquet", "missing"), ("text.parquet", "cannot be read"), ("other.parquet", "no prepared file")],
)
def test_files_of_another_kind_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.parquet").write_text("text", encoding="utf-8")
    pq.write_table(pa.table({"question": ["1+1"]}), "other.parquet")
    with pytest.raises(DataError, match=message):
        Data(DrawnDataConfig(train=[train])).tasks("train")
