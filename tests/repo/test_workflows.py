"""The workflows and the forms of the hosted repository fit the workspace."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from publish_site import publish
from release_notes import notes
from workflows import FOLDER, WORKFLOWS, text_of
from workspace import ROOT, VERSIONS, members, read_toml

FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
VERSION = members()[0].version


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def commands(workflow: dict[str, Any]) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


def test_workflows_are_current() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(WORKFLOWS)
    stale = [name for name in WORKFLOWS if (FOLDER / name).read_text(encoding="utf-8") != text_of(name)]
    assert stale == [], "run: uv run python tests/repo/workflows.py"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_runs_scripts_and_dependency_groups_that_exist(name: str) -> None:
    text = "\n".join(commands(read(FOLDER / name)))
    scripts = re.findall(r"python (tests/\S+\.py)", text)
    assert [script for script in scripts if not (ROOT / script).is_file()] == []
    root = read_toml(ROOT / "pyproject.toml")
    assert set(re.findall(r"--only-group (\S+)", text)) <= set(root["dependency-groups"])
    assert set(re.findall(r"--extra (\S+)", text)) <= set(root["project"]["optional-dependencies"])


def test_nightly_tests_every_package_with_every_python_and_every_set_of_versions() -> None:
    axes = read(FOLDER / "nightly.yml")["jobs"]["packages"]["strategy"]["matrix"]
    covered = {
        (name, python, versions)
        for names, python, versions in itertools.product(axes["names"], axes["python"], axes["versions"])
        for name in names.split()
    }
    names = [member.name for member in members()]
    assert covered == set(itertools.product(names, VERSIONS, ("lowest", "locked", "newest")))


def test_matrix_of_a_change_is_within_the_limit_of_the_host() -> None:
    matrix = read(FOLDER / "ci.yml")["jobs"]["package"]["strategy"]["matrix"]
    combinations = len(matrix["python"]) * len(matrix["versions"]) - len(matrix["exclude"])
    assert combinations == len(VERSIONS)
    assert combinations * len(members()) <= 256


def test_tokens_of_workflows_can_only_read_except_to_publish() -> None:
    for name in WORKFLOWS:
        workflow = read(FOLDER / name)
        assert workflow["permissions"] == {"contents": "read"}
        writing = {job for job, each in workflow["jobs"].items() if "write" in each.get("permissions", {}).values()}
        assert writing == ({"publish", "page", "site"} if name == "release.yml" else set())


def test_supported_python_versions_are_those_of_the_project() -> None:
    wanted = read_toml(ROOT / "pyproject.toml")["project"]["requires-python"]
    last = int(VERSIONS[-1].partition(".")[2])
    assert wanted == f">={VERSIONS[0]},<3.{last + 1}"


@pytest.mark.parametrize("form", ["bug.yml", "does-not-learn.yml"])
def test_forms_ask_for_the_doctor(form: str) -> None:
    fields = {field["id"]: field for field in read(FORMS / form)["body"]}
    assert fields["doctor"]["validations"]["required"]
    assert "rlcore doctor --json" in fields["doctor"]["attributes"]["label"]


def test_citation_names_the_version() -> None:
    assert read(ROOT / "CITATION.cff")["version"] == VERSION


def test_release_notes_are_the_section_of_the_tag() -> None:
    changelog = (
        f"# Changelog\n\n## [Unreleased]\n\nlater\n\n## {VERSION}\n\n### Added\n\n- this\n\n## 0.0.1\n\n- before\n"
    )
    assert notes(f"v{VERSION}", changelog) == "### Added\n\n- this"
    with pytest.raises(SystemExit, match=r"v9\.9\.9"):
        notes("v9.9.9", changelog)
    with pytest.raises(SystemExit, match="no section"):
        notes(f"v{VERSION}", "## [Unreleased]\n")


def test_published_site_lists_versions_newest_first(tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    for tag in ("v0.9.1", "v0.10.0", "v0.9.2"):
        site = tmp_path / tag
        site.mkdir()
        (site / "index.html").write_text(tag, encoding="utf-8")
        publish(site, tmp_path / "published", tag)
    listed = json.loads((tmp_path / "published" / "versions.json").read_text(encoding="utf-8"))
    assert [(each["version"], each["aliases"]) for each in listed] == [("0.10", ["latest"]), ("0.9", [])]
    assert (tmp_path / "published" / "0.9" / "index.html").read_text(encoding="utf-8") == "v0.9.2"
    assert (tmp_path / "published" / "latest" / "index.html").read_text(encoding="utf-8") == "v0.10.0"
