"""``rlcore data prepare visual-search``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rl_plugin_visual_search.config import DataConfig, PrepareConfig
from rl_plugin_visual_search.data.prepare import prepare
from rl_plugin_visual_search.dataset import VisualSearchData
from rlcore.cli import main
from rlcore.errors import DataError, UserError
from rlcore.types import Task, media_hash
from solid_pictures import picture


def rows_about(*pictures: tuple[int, ...]) -> list[dict[str, Any]]:
    """A question about each group of pictures, which are numbers."""
    return [
        {
            "question": f"{number}?",
            "answer": "red",
            "aliases": ["crimson"],
            "options": ["red", "blue"],
            "images": [f"{each}.png" for each in group],
            "data_source": "vstar",
            "category": "direct_attributes",
            "prompt": [{"role": "user", "content": f"<image> {number}?"}],
        }
        for number, group in enumerate(pictures)
    ]


def source(folder: Path, rows: list[Any]) -> Path:
    """A file of rows beside their pictures."""
    for number in range(10):
        (folder / f"{number}.png").write_bytes(picture(color=(number, 0, 0)))
    path = folder / "rows.json"
    path.write_text(json.dumps(rows))
    return path


def prepared(folder: Path, **options: Any) -> Any:
    given = {"source": str(folder / "rows.json"), "out": str(folder / "out" / "train.parquet"), **options}
    return prepare(PrepareConfig.model_validate(given))


def tasks_of(path: Path, **options: Any) -> list[Task]:
    return list(VisualSearchData(DataConfig.model_validate({"train": str(path), **options})).tasks("train"))


def test_prepared_file_has_the_same_tasks_as_its_source(tmp_path: Path) -> None:
    file = source(tmp_path, rows_about((0,), (1, 2)))
    summary = prepared(tmp_path)
    assert summary["pictures"] == 3
    assert summary["written"].startswith("2 rows to")
    for style in ("guided", "row"):
        before, after = tasks_of(file, style=style), tasks_of(tmp_path / "out" / "train.parquet", style=style)
        assert [(task.messages, task.fields, task.images) for task in before] == [
            (task.messages, task.fields, task.images) for task in after
        ]


def test_held_out_questions_share_no_picture_with_the_others(tmp_path: Path) -> None:
    source(tmp_path, rows_about((0,), (0, 1), (1, 2), (3,), (4,), (4, 5), (6,), (7,), (8,), (9,)))
    chosen = set()
    for seed in range(4):
        out, subset = tmp_path / f"{seed}.parquet", tmp_path / f"{seed}-held.parquet"
        prepared(tmp_path, out=str(out), subset=str(subset), subset_size=3, seed=seed)
        parts = [tasks_of(path) for path in (out, subset)]
        assert sum(map(len, parts)) == 10
        assert 3 <= len(parts[1]) <= 5
        seen = [{media_hash(image) for task in part for image in task.images} for part in parts]
        assert not seen[0] & seen[1]
        chosen.add(tuple(task.fields["question"] for task in parts[1]))
    assert len(chosen) > 1


def test_unusable_rows_are_counted_or_nothing_is_written(tmp_path: Path) -> None:
    source(tmp_path, [*rows_about((0,)), {"question": "?"}, "text", {"messages": []}])
    summary = prepared(tmp_path)
    assert (summary["unusable: no answer"], summary["unusable: invalid row"]) == (1, 2)
    with pytest.raises(DataError, match="rows cannot be used"):
        prepared(tmp_path, out=str(tmp_path / "strict.parquet"), strict=True)
    assert [path.name for path in tmp_path.glob("*strict*")] == []


def test_existing_and_unusual_outputs_are_errors(tmp_path: Path) -> None:
    source(tmp_path, rows_about((0,)))
    prepared(tmp_path)
    with pytest.raises(UserError, match="exists"):
        prepared(tmp_path)
    prepared(tmp_path, overwrite=True)
    with pytest.raises(UserError, match="parquet"):
        prepared(tmp_path, out=str(tmp_path / "rows.json"), overwrite=True)
    out = str(tmp_path / "out" / "train.parquet")
    with pytest.raises(UserError, match="source"):
        prepared(tmp_path, source=out, out=out, overwrite=True)
    with pytest.raises(DataError, match="no row"):
        prepared(tmp_path, out=str(tmp_path / "a.parquet"), subset=str(tmp_path / "b.parquet"))
    with pytest.raises(UserError, match="folder of out") as raised:
        prepared(tmp_path, out=f"{out}/train.parquet")
    assert out in (raised.value.found or "")
    with pytest.raises(ValueError, match="subset_size needs subset"):
        prepared(tmp_path, subset_size=3, overwrite=True)


def test_command_prepares_the_real_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Path(os.environ.get("RLCORE_DATA", "missing"))
    if not (real / "visual_search").is_dir():
        pytest.skip("RLCORE_DATA names no folder with visual_search")
    file, out = real / "visual_search" / "deepeyes_schema_sample.parquet", tmp_path / "train.parquet"
    words = ["data", "prepare", "visual-search", f"source={file}", f"images={real}", f"out={out}", "--json"]
    monkeypatch.setattr("sys.argv", ["rlcore", *words])
    assert main() == 0
    assert json.loads(capsys.readouterr().out)["written"] == f"12 rows to {out}"
    assert len(tasks_of(out)) == 12
    assert main() == 2
    assert "overwrite=true" in capsys.readouterr().err
