"""The conformance suite, and the file that the tracker writes."""

from pathlib import Path

from rl_plugin_csv_file.tracker import CsvConfig, CsvTracker
from rlcore.testing import check_plugin


def test_plugin_conforms() -> None:
    check_plugin("csv-file")


def test_metrics_are_appended_after_a_resume(tmp_path: Path) -> None:
    for step, reward in ((1, 0.25), (2, 0.5)):
        tracker = CsvTracker(CsvConfig(prefix="reward/"), tmp_path)
        tracker.log(step, {"reward/mean": reward, "loss": 0.1})
        tracker.close()
    assert (tmp_path / "metrics.csv").read_text("utf-8").split() == ["1,reward/mean,0.25", "2,reward/mean,0.5"]
