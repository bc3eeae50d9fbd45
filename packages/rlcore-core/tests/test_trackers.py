"""Output of the metric trackers."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from pictured_groups import groups
from PIL import Image
from rlcore import redaction
from rlcore.errors import NotInstalledError
from rlcore.images import image_size, side_by_side
from rlcore.plugins.loading import load_attribute, pip_line
from rlcore.rollouts.records import write_groups
from rlcore.testing import make_trajectory
from rlcore.trackers.console import ConsoleTracker, area_chart, sparkline
from rlcore.trackers.jsonl import JsonlTracker
from rlcore.trackers.options import TensorboardOptions
from rlcore.trackers.samples import SampleTable, sample_table, samples
from rlcore.trackers.service import ServiceTracker
from rlcore.types import Boundary, Failure, Group, Message, RewardResult, Task, Trajectory

STEP = {
    "reward/mean": 0.25,
    "accuracy": 0.5,
    "kl/mean": 0.0012,
    "loss/total": -0.01,
    "tokens/sampled": 12345,
    "time/step_s": 1.25,
}


def test_console_prints_one_aligned_line_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    tracker = ConsoleTracker(None, None)
    tracker.log(1, STEP)
    tracker.log(100, {**STEP, "reward/mean": 1.0, "kl/mean": -0.5, "loss/total": 12.5, "tokens/sampled": 7})
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "step     1  reward  0.250  accuracy 0.500  kl  1.2e-03  loss  -0.0100  tokens  12,345     1.2 s  ▁"
    )
    assert second.index(" s  ▁█") == first.index(" s  ▁")


def test_console_ends_with_curves_and_first_best_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracker = ConsoleTracker(None, tmp_path)
    for step, accuracy in ((0, 0.3), (10, 0.9), (20, 0.8)):
        tracker.log(step, {"evaluation/accuracy": accuracy, "evaluation/reward": 0.1, "time/evaluation_s": 2.0})
    tracker.log(20, {**STEP, "not_scored": 3})
    tracker.close()
    shown = capsys.readouterr().out
    assert "step    10  evaluation  accuracy 0.900  reward 0.100  2.0 s  ▃▇" in shown
    assert "not scored 3" in shown
    assert "accuracy on held-out tasks" in shown
    assert "    first   0.300   step 0\n    best    0.900   step 10\n    last    0.800   step 20" in shown
    assert (tmp_path / "output.log").read_text() == shown
    assert "\x1b" not in shown
    assert "\r" not in shown


def test_console_draws_the_reward_if_no_task_is_ever_solved(capsys: pytest.CaptureFixture[str]) -> None:
    tracker = ConsoleTracker(None, None)
    for step, reward in ((0, -1200.0), (5, -700.0), (10, -300.0)):
        tracker.log(step, {"evaluation/accuracy": 0.0, "evaluation/reward": reward})
    tracker.close()
    shown = capsys.readouterr().out
    assert "reward on held-out tasks" in shown
    assert "    best   -300.000   step 10" in shown


def test_console_of_a_resumed_run_continues_its_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracker = JsonlTracker(None, tmp_path)
    for step in range(1, 4):
        tracker.log(step, {"reward/mean": step / 10})
    tracker.close()
    ConsoleTracker(None, tmp_path).log(4, {"reward/mean": 0.4, "time/step_s": 1})
    assert capsys.readouterr().out.rstrip().endswith("▁▃▆█")


def test_console_shows_the_accuracy_of_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleTracker(None, None).log(1, {"loss": 0.5, "preference/accuracy": 0.75, "time/step_s": 1.0})
    assert "loss   0.5000  accuracy 0.750" in capsys.readouterr().out


def test_console_shows_other_metrics_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleTracker(None, None).log(3, {"warmup/loss": 1.23456, "time/warmup_s": 1.0})
    assert capsys.readouterr().out == "step     3  warmup/loss 1.235\n"


def test_jsonl_appends_flat_objects_of_valid_json(tmp_path: Path) -> None:
    for step in (1, 2):
        tracker = JsonlTracker(None, tmp_path)
        tracker.log(step, {"a/b": 0.5, "count": 3, "bad": math.nan, "worse": math.inf})
        tracker.close()
    first, second = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert {key: value for key, value in second.items() if key != "time"} == {
        "step": 2,
        "a/b": 0.5,
        "count": 3,
        "bad": None,
        "worse": None,
    }
    assert first["step"] == 1


@pytest.mark.parametrize(
    "target",
    [
        "rlcore.trackers.wandb:WandbTracker",
        "rlcore.trackers.trackio:TrackioTracker",
        "rlcore.trackers.tensorboard:TensorboardTracker",
    ],
)
def test_missing_library_names_the_extra(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = target.partition(":")[0].rpartition(".")[2]
    tracker = load_attribute(target)
    for module in [known for known in sys.modules if known.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(NotInstalledError) as raised:
        tracker(None, tmp_path)
    assert raised.value.fix == pip_line([f"rlcore-core[{name}]"])


def test_tensorboard_files_contain_the_scalars(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install 'rlcore-core[tensorboard]'")
    tracker = load_attribute("rlcore.trackers.tensorboard:TensorboardTracker")(TensorboardOptions(), tmp_path)
    tracker.log(7, {"reward/mean": 0.5})
    tracker.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert b"reward/mean" in file.read_bytes()


class Sent(ServiceTracker):
    """A service that keeps what it receives."""

    def __init__(self, directory: Path | None) -> None:
        super().__init__("sent", directory, samples=3)
        self.sent: list[tuple[int, dict[str, float], dict[str, int]]] = []

    def send(self, step: int, metrics: Mapping[str, float], tables: Mapping[str, SampleTable]) -> None:
        self.sent.append((step, dict(metrics), {name: len(table.rows) for name, table in tables.items()}))

    def close(self) -> None: ...


class SentWithImages(Sent):
    """A service with tables that can contain images."""

    def __init__(self, directory: Path | None) -> None:
        super().__init__(directory)
        self.tables: list[SampleTable] = []

    def image(self, data: bytes) -> Any:
        return data

    def send(self, step: int, metrics: Mapping[str, float], tables: Mapping[str, SampleTable]) -> None:
        self.tables += tables.values()


def test_tables_of_samples_have_small_pictures(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    tracker = SentWithImages(tmp_path)
    text = Group(task=Task(id="t", messages=()), trajectories=(make_trajectory("a").replace(reward=2.0),))
    tracker.log_samples(0, "evaluation", [text, *groups(5, side=900)])
    tracker.log(0, {})
    (table,) = tracker.tables
    assert table.columns[-1] == "images"
    first, *others = table.rows
    assert first[-1] is None
    assert len(others) == 2
    for row in others:
        with Image.open(io.BytesIO(row[-1])) as picture:
            assert picture.height <= 192
            assert picture.width <= 4 * 192 + 12
    plain = Sent(tmp_path)
    plain.log_samples(0, "evaluation", groups(2))
    plain.log(0, {})
    assert plain.sent == [(0, {}, {"samples/evaluation": 2})]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the reader
def test_tensorboard_files_contain_pictures_and_tables_of_samples(tmp_path: Path) -> None:
    reason = "tensorboard is not installed: pip install 'rlcore-core[tensorboard]'"
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader", reason=reason)
    from tensorboard.plugins.text.text_plugin import text_array_to_html
    from tensorboard.util.tensor_util import make_ndarray

    tracker = load_attribute("rlcore.trackers.tensorboard:TensorboardTracker")(TensorboardOptions(samples=4), tmp_path)
    hostile = "a | b\n# c *d* `e` <img src=x onerror=f()> [g](javascript:h) ![i](http://j/k) &lt; \u202e"
    task = Task(id="t", messages=())
    worst = Group(task=task, trajectories=(make_trajectory(hostile).replace(reward=-1.0),))
    tracker.log_samples(3, "train", groups(2))
    tracker.log_samples(7, "evaluation", [*groups(20), worst])
    tracker.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    events = [event for event in loader.EventFileLoader(str(file)).Load() if event.HasField("summary")]
    values = {value.tag: value for event in events for value in event.summary.value}
    assert {event.step for event in events} == {7}
    assert sorted(values) == ["samples/evaluation", *(f"samples/evaluation/{row}" for row in range(3))]
    assert file.read_bytes().count(b"\x89PNG") == 3
    assert values["samples/evaluation"].metadata.plugin_data.plugin_name == "text"
    html = text_array_to_html(make_ndarray(values["samples/evaluation"].tensor), enable_markdown=True)
    rows = html.split("<tr>")[1:]
    assert len(rows) == 1 + 4
    assert all(row.count("<td>") == rows[0].count("<th>") for row in rows[1:])
    shown = re.findall("<td>(.*)</td>", rows[-1])[rows[0].split("<th>").index("answer</th>\n") - 1]
    assert "<" not in shown.replace("<br>", "")
    expected = hostile.replace("\u202e", "\\u202e")
    assert unescape(shown.replace("<br>", "\n")) == expected


def test_pictures_of_a_table_leave_out_damaged_images() -> None:
    picture = groups(1)[0].task.images[0]
    assert side_by_side([b"damaged"]) is None
    row = side_by_side([b"damaged", picture, picture], most=3)
    assert row is not None
    assert image_size(row) == (112 + 4 + 112, 112)


def test_runs_of_one_name_have_different_ids_which_a_resume_keeps(tmp_path: Path) -> None:
    folders = [tmp_path / parent / "run" for parent in "ab"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text('[model]\npath = "x"\n', encoding="utf-8")
    first, second = map(Sent, folders)
    assert first.id != second.id
    assert Sent(folders[0]).id == first.id
    assert first.config == {"model": {"path": "x"}}


def test_resumed_service_receives_earlier_metrics_and_samples_again(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "media").mkdir()
    assert not Sent(tmp_path).can_replay
    task = Task(id="t", messages=())
    stored = [Group(task=task, trajectories=tuple(make_trajectory("hi", sibling=n) for n in range(4)))]
    write_groups(tmp_path / "rollouts" / "evaluation-000002.jsonl.gz", stored)
    jsonl = JsonlTracker(None, tmp_path)
    jsonl.log(1, {"loss": 0.5, "bad": math.nan})
    jsonl.log(2, {"loss": 0.25})
    for step in (9, 10):
        write_groups(tmp_path / "rollouts" / f"train-{step:06d}.jsonl.gz", stored)
        jsonl.log(step, {})
    resumed = Sent(tmp_path)
    resumed.replay()
    resumed.log_samples(20, "train", stored)
    resumed.log_samples(20, "evaluation", stored[:1])
    resumed.log(20, {"loss": 0.0})
    resumed.log(21, {})
    assert resumed.sent == [
        (1, {"loss": 0.5}, {}),
        (2, {"loss": 0.25}, {"samples/evaluation": 3}),
        (9, {}, {}),
        (10, {}, {"samples/train": 3}),
        (20, {"loss": 0.0}, {"samples/train": 3, "samples/evaluation": 3}),
        (21, {}, {}),
    ]


def scored(*rewards: float | None) -> Group:
    made = [make_trajectory(f"{reward}").replace(reward=reward) for reward in rewards]
    return Group(task=Task(id="t", messages=()), trajectories=tuple(made))


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, [5]), (2, [5, None]), (3, [5, 2, None]), (9, 6)])
def test_samples_are_the_best_the_worst_and_some_in_between(count: int, expected: Any) -> None:
    chosen = [one.reward for one in samples([scored(1, 4, None), scored(5, 0, 2)], count)]
    assert chosen == ([5, 4, 2, 1, 0, None] if expected == 6 else expected)


def test_rows_of_samples_have_each_reward_and_safe_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", ())  # and restored, without the secret
    redaction.remember("hush-hush-secret")
    chat = (Message(role="user", content="What?"), "x" * 9_990 + "hush-hush-secret", "no\x1b\u202e\n")
    failed = make_trajectory(*chat, failure=Failure(boundary=Boundary.TOOL, message="broke\x07"))
    judged: Trajectory = make_trajectory("yes").replace(reward=1.0, rewards={"judge": RewardResult(value=0.5)})
    table = sample_table(7, [judged, failed])
    first, second = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert (first["reward"], first["reward/judge"], first["stop"], first["tokens"]) == (1.0, 0.5, "done", 3)
    assert (second["step"], second["reward/judge"], second["stop"]) == (7, None, "tool: broke\\x07")
    assert second["prompt"] == "user: What?"
    assert second["answer"] == "no\\x1b\\u202e\n"
    assert "hush" not in second["conversation"]
    assert len(second["conversation"]) == 10_000


TRACKER = """
from rlcore import Table

class Mine:
    class Config(Table):
        {key}: int = 3
    def __init__(self, config, directory):
        assert isinstance(config, self.Config), config
        {body}
    def log(self, step, metrics): ...
    def close(self): ...
"""


def test_trackers_receive_their_validated_config(rlcore: Any, toy: Any) -> None:
    body = "(directory / 'rate.txt').write_text(str(config.rate))"
    Path("mine.py").write_text(TRACKER.format(key="rate", body=body), encoding="utf-8")
    own = '[trackers]\nuse = ["mine.py:Mine"]\n[trackers."mine.py:Mine"]\nrate = 5\n'
    Path("own.toml").write_text(own, encoding="utf-8")
    done = rlcore("run", "-p", "toy", "name=a", "-c", "own.toml")
    assert done.status == 0, done.err
    assert Path("runs/a/rate.txt").read_text(encoding="utf-8") == "5"
    assert '"mine.py:Mine"' in Path("runs/a/config.toml").read_text(encoding="utf-8")
    done = rlcore("run", "--resume", "runs/a", "trainer.steps=4")
    assert done.status == 0, done.err


@pytest.mark.parametrize("error", ["OSError('no disk')", "SystemExit(3)"])
def test_tracker_that_cannot_be_created_is_an_error_that_names_it(error: str, rlcore: Any, toy: Any) -> None:
    Path("mine.py").write_text(TRACKER.format(key="rate", body=f"raise {error}"), encoding="utf-8")
    done = rlcore("run", "-p", "toy", "trackers.use=[mine.py:Mine]")
    assert done.status == 2
    assert "mine.py:Mine" in done.err
    assert error[:7] in done.err
    assert "Traceback" not in done.err


def test_sparklines_scale_to_their_range() -> None:
    assert sparkline([0, 0.5, 1]) == "▁▅█"
    assert sparkline([2, 2]) == "▁▁"
    assert sparkline([]) == ""
    assert len(sparkline(list(range(100)))) == 24


@pytest.mark.parametrize("count", [1, 2, 7, 56, 57, 1000])
def test_area_charts_draw_values_at_their_heights(count: int) -> None:
    rows = area_chart(list(range(count)), [1.0] * count, title="x", width=56, height=4)
    assert len(rows) == 7
    widths = {row.count("█") for row in rows[1:5]}
    assert len(widths) == 1
    assert widths.pop() <= 56
    flat = area_chart([0, 1], [0.0, 0.0], title="x")
    assert not any("█" in row for row in flat)
