"""A file of rollouts outside of a run is shown like a run of one evaluation."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pictured_groups import groups
from rlcore.errors import DataError
from rlcore.rollouts.records import write_groups
from rlcore.types import Group
from rlcore_view.cli import report
from rlcore_view.errors import NotFoundError
from rlcore_view.library import Library
from rlcore_view.report import report_text
from rlcore_view.routes import answer, media

Ask = Callable[..., Any]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """What ``rlcore eval --save`` writes: three tasks with images, two answers each."""
    path = tmp_path / "answers.jsonl.gz"
    write_groups(path, groups(3, siblings=2))
    return path


def as_lines(path: Path) -> Path:
    plain = path.with_name("plain.jsonl")
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    return plain


def as_one_member(path: Path) -> Path:
    again = path.with_name("again.jsonl.gz")
    again.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())))
    return again


@pytest.mark.parametrize("form", [lambda path: path, as_lines, as_one_member])
def test_file_is_a_run_of_one_evaluation(saved: Path, form: Callable[[Path], Path]) -> None:
    path = form(saved)
    library, id = Library([path]), path.name.partition(".")[0]
    run = answer(library, f"runs/{id}", {})
    assert (run["state"], run["config"], run["files"]) == (
        "ended",
        {},
        [{"purpose": "evaluation", "step": 0, "unfinished": False}],
    )
    assert [line["id"] for line in answer(library, "runs", {})["runs"]] == [id]
    rows = answer(library, f"runs/{id}/evaluation/0", {})["rows"]
    assert [(row["group"], row["sibling"]) for row in rows] == [(g, s) for g in range(3) for s in range(2)]
    assert run["last"]["reward/mean"] == pytest.approx(_mean([row["reward"] for row in rows]))
    group = answer(library, f"runs/{id}/evaluation/0/2", {})
    assert (group["task"], group["previous"], len(group["trajectories"])) == ("scenes/2", 1, 2)
    picture = next(part["image"] for message in group["prompt"] for part in message["parts"] if "image" in part)
    assert media(library, f"{id}/{picture}")[1] == "image/png"
    assert answer(library, f"runs/{id}/metrics", {}) == {"rows": [], "next": 0}
    assert answer(library, f"runs/{id}/findings", {}) == {"findings": []}
    assert answer(library, f"runs/{id}/evaluation/0/2/1/tokens", {})["missing"] == "An evaluation trains no tokens."


def _mean(rewards: list[float | None]) -> float:
    scored = [reward for reward in rewards if reward is not None]
    return sum(scored) / len(scored)


def test_file_is_searched_like_a_run(saved: Path) -> None:
    library = Library([saved])

    def total(**query: str) -> int:
        return int(answer(library, "runs/answers/find", query)["total"])

    assert (total(), total(task="scenes/1"), total(text="largest"), total(text="gone")) == (6, 2, 6, 0)
    assert total(where="reward is None", text="largest") + total(where="reward is not None") == 6
    assert (total(steps="0-5"), total(steps="1-5"), total(purpose="train")) == (6, 0, 0)


def test_name_of_a_rescored_file_has_its_step(saved: Path) -> None:
    library = Library([saved.rename(saved.with_name("rescored-evaluation-000030.jsonl.gz"))])
    (file,) = answer(library, "runs/rescored-evaluation-000030", {})["files"]
    assert (file["purpose"], file["step"]) == ("evaluation", 30)


def test_file_of_a_run_shows_its_run(run: Path) -> None:
    assert [shown.path for shown in Library([run / "rollouts" / "train-000001.jsonl.gz"]).runs()] == [run]


def test_folder_of_results_with_a_configuration_is_a_run(saved: Path) -> None:
    saved.rename(saved.with_name("evaluation-000000.jsonl.gz"))
    (saved.parent / "config.toml").write_text('[model]\npath = "m"\n', encoding="utf-8")
    library = Library([saved.parent])
    (line,) = answer(library, "runs", {})["runs"]
    assert (line["model"], line["state"]) == ("m", "ended")
    assert answer(library, f"runs/{line['id']}/evaluation/0/2", {})["task"] == "scenes/2"
    assert report_text([saved.parent])[0].trajectories == 6


@pytest.mark.parametrize("content", [b"", b"{}\n", b'{"messages": []}\n', b"\x00"])
def test_files_that_are_no_rollouts_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(DataError):
        Library([tmp_path / "rows.jsonl"])


def test_file_that_is_damaged_later_or_removed(saved: Path) -> None:
    library, whole = Library([saved]), saved.read_bytes()
    saved.write_bytes(whole[:-20])
    (line,) = answer(library, "runs", {})["runs"]
    assert (line["state"], "answers.jsonl.gz" in line["problem"]) == ("damaged", True)
    with pytest.raises(DataError):
        answer(library, "runs/answers/evaluation/0", {})
    saved.unlink()
    assert answer(library, "runs", {})["runs"] == []
    with pytest.raises(NotFoundError):
        answer(library, "runs/answers", {})


def test_absurd_rewards_cost_only_their_file(saved: Path) -> None:
    absurd = [
        Group(task=one.task, trajectories=tuple(each.replace(reward=1e308) for each in one.trajectories))
        for one in groups(1, siblings=2)
    ]
    write_groups(saved.with_name("absurd.jsonl.gz"), absurd)
    lines = answer(Library([saved, saved.with_name("absurd.jsonl.gz")]), "runs", {})["runs"]
    assert [line["state"] for line in lines] == ["ended", "damaged"]


def test_missing_images_cost_only_themselves(saved: Path) -> None:
    shutil.rmtree(saved.parent / "media")
    library = Library([saved])
    assert len(answer(library, "runs/answers/evaluation/0/0", {})["trajectories"]) == 2


def test_report_of_a_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved.parent)
    done = CliRunner().invoke(report, [str(saved)])
    assert (done.exit_code, "6 trajectories" in done.output) == (0, True)
    text = Path("answers.html").read_text(encoding="utf-8")
    assert '"api/runs/answers/evaluation/0/2"' in text
    assert "data:image/png;base64," in text
