"""The command line of ``rlcore data prepare mind2web``."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from recorded_episodes import label, mind2web_action, mind2web_episode, write_labels, write_mind2web
from rlcore.cli import main


def test_arguments_of_the_earlier_script_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    actions = [mind2web_action("a"), mind2web_action("b")]
    write_mind2web(tmp_path, [mind2web_episode(f"e{number}", actions) for number in range(6)])
    write_labels(tmp_path, [label(f"e{number}", 0, "Searched.") for number in range(6)])
    arguments = """data prepare mind2web --mind2web_data_path mind2web_data_train.json --imgs_dir images
        --thinking_results_path labels.jsonl --output_path full_data.parquet --output_subset_path subset_data.parquet
        --subset_size 4 --using_memory_input"""
    monkeypatch.setattr("sys.argv", ["rlcore", *arguments.split()])
    assert main() == 0
    full, subset = (pq.read_table(f"{name}_data.parquet") for name in ("full", "subset"))
    assert (len(full), len(subset)) == (8, 4)
    assert full["memory"].to_pylist() == [None, "Searched."] * 4
    assert not set(full["episode_id"].to_pylist()) & set(subset["episode_id"].to_pylist())
