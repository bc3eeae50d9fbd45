"""Reports contain the answers of the server by the paths of the page, in a file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rlcore_view import report
from rlcore_view.cli import report as command
from rlcore_view.notebook import Page
from rlcore_view.report import Contents, write_report


def contents_of(run: Path, **options: Any) -> tuple[Contents, str, dict[str, Any]]:
    """What was kept, the file, and the answers in it."""
    out = run.parent / "report.html"
    contents = write_report([run], out, **options)
    text = out.read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="rlcore-report">(.*?)</script>', text)
    return contents, text, json.loads(data)


def test_best_and_worst_trajectories_are_kept_with_the_answers_of_the_server(run: Path, ask: Any) -> None:
    contents, _, answers = contents_of(run, trajectories=3)
    kept = answers["api/runs/first/find"]["rows"]
    assert contents.trajectories == len(kept) == 3
    assert {row["purpose"] for row in kept} == {"evaluation", "train"}
    assert any(row["reward"] is None for row in kept)
    assert any(row.get("fate") == "dropped" for row in kept)
    assert (answers["api/runs/first/find"]["searched"], len(ask("runs/first/find", limit="99")["rows"])) == (14, 14)
    for row in kept:
        place = f"runs/first/{row['purpose']}/{row['step']}/{row['group']}"
        assert answers[f"api/{place}"] == ask(place)
        assert answers[f"api/{place}/{row['sibling']}/tokens"] == ask(f"{place}/{row['sibling']}/tokens")
    assert answers["api/runs/first/metrics"] == ask("runs/first/metrics")
    assert answers["api/runs"] == {**ask("runs"), "report": True}


def test_pictures_are_embedded_until_the_report_is_full(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents, _, answers = contents_of(run)
    pictures = {path: uri for path, uri in answers.items() if path.startswith("media/first/")}
    assert contents.left_out == 0
    assert any("/frame/" in path for path in pictures)
    small = {path for path in pictures if "/small/" in path}
    assert {f"media/first/small/evaluation/0/{group}/0" for group in (0, 1)} <= small
    shown = [answers[f"api/runs/first/{step}"]["pictures"] for step in ("evaluation/0", "train/1", "train/3")]
    assert shown == [True, False, True]
    assert all(uri.startswith("data:image/") for uri in pictures.values())
    monkeypatch.setattr(report, "MOST_BYTES", 3_000)
    less, _, answers = contents_of(run)
    assert less.left_out + sum(path.startswith("media/") for path in answers) == len(pictures)
    assert 0 < less.pictures <= 3_000


def test_policy_permits_only_the_script_and_the_style_of_the_file(run: Path) -> None:
    _, text, _ = contents_of(run)
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    allowed = set(re.findall("sha256-([^&']+)", policy))
    bodies = re.findall("<(?:script|style)>(.*?)</(?:script|style)>", text, re.DOTALL)
    assert allowed == {base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies}
    assert policy.startswith("default-src &#39;none&#39;; img-src data:;")


def test_text_for_readers_without_scripts_has_the_run_and_its_trajectories(run: Path) -> None:
    for path in (*run.glob("rollouts/train-000003*"), *run.glob("evidence/train-000003*")):
        path.unlink()  # of the robot
    _, text, _ = contents_of(run)
    main = text[text.index("<main") : text.index("</main>")]
    assert "<script" not in main
    for said in ("gsm8k-tools/default", "reward/mean", "the answer is 42", "&lt;script&gt;alert(1)&lt;/script&gt;"):
        assert said in main
    assert "secret-of-the-service" not in text


def test_damaged_groups_and_large_steps_are_left_out(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = contents_of(run)[0].trajectories
    monkeypatch.setattr(report, "MOST_ROWS", 3)
    contents, _, answers = contents_of(run)
    steps = [path for path in answers if re.fullmatch("api/runs/first/(train|evaluation)/[0-9]+", path)]
    assert sum(len(answers[path]["rows"]) for path in steps) <= 3
    # The best and the worst need not be in a step of the report; what is unusual is chosen from those.
    assert contents.trajectories == whole - len(report.UNUSUAL)
    (run / "rollouts" / "evaluation-000000.jsonl.gz").write_bytes(b"damaged")
    assert 0 < contents_of(run)[0].trajectories < whole


def test_report_of_several_runs_has_a_name_of_its_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    for runs, name in ([run], "first.html"), ([run, run], "report.html"):
        done = CliRunner().invoke(command, [*map(str, runs), "--trajectories", "0"])
        assert (done.exit_code, Path(name).is_file()) == (0, True), done.output


def test_page_of_a_notebook_is_a_report_in_a_frame(run: Path) -> None:
    page = Page(run, 2)
    (data,) = re.findall('src="data:text/html;base64,([^"]+)"', page._repr_html_())
    assert base64.b64decode(data).decode() == page.html
    assert page.contents.trajectories == 2
