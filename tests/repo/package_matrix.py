"""Check every distribution alone: build it, install its wheel outside the workspace and run its tests.

::

    uv run python tests/repo/package_matrix.py                       # all members, this interpreter's Python
    uv run python tests/repo/package_matrix.py --light               # import every module instead of running tests
    uv run python tests/repo/package_matrix.py rlcore-core --python 3.12
    uv run python tests/repo/package_matrix.py rlcore-core --versions lowest
    uv run python tests/repo/package_matrix.py 'rlcore-rollout[torch]'
    uv run python tests/repo/package_matrix.py --list                # JSON, for a matrix of jobs

Each environment contains the wheel, the wheels of the members that it declares, their third-party dependencies (in
the locked versions, or with ``--versions`` the lowest that the members allow or the newest on the index), pytest,
pytest-timeout, hypothesis, pillow and the modules of ``tests/shared``, and nothing else.
With torch, torchvision is added, which transformers needs for the image processors that tests compare with. A member
without a module has no tests; ``rlcore plugins list --check`` runs instead, as it does with ``--light``, which imports
every module: one that needs a library of an extra is printed. One environment per core is tested at a time, with one
thread each. All members are tested. The exit status is 1 if one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from workspace import ROOT, Member, closure, distribution, members

RUNNER = ("pytest>=9", "pytest-timeout>=2.4", "hypothesis>=6.150", "pillow>=11")
"""What tests need. They draw pictures with pillow."""
SETTINGS = """
[pytest]
addopts = --strict-markers --import-mode=importlib -p no:cacheprovider -m "not slow and not long and not proof" -ra
    --hypothesis-profile=ci
markers =
    slow: minutes
    long: minutes
    numeric: numbers
    proof: hours
filterwarnings = error
xfail_strict = true
timeout = 300
pythonpath = shared
"""


IMPORTS = """
import collections, importlib, pkgutil, sys
module = importlib.import_module(sys.argv[1])
count, skipped = 0, collections.Counter()
for found in pkgutil.walk_packages(module.__path__, f"{module.__name__}.", onerror=lambda name: None):
    if found.name.endswith(".__main__"):
        continue
    try:
        importlib.import_module(found.name)
        count += 1
    except Exception as error:
        if not isinstance(error, ModuleNotFoundError) and type(error).__name__ != "NotInstalledError":
            raise
        skipped[str(error).splitlines()[0]] += 1
for reason, modules in skipped.items():
    print(f"SKIPPED [{modules}] {reason}")
print(f"{count} modules imported")
"""
"""Imports every module of a package. A missing library must belong to an extra, which a test of imports checks."""


def run(command: list[str], *, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without the workspace's environment variables; stdout and stderr are combined."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "PYTEST_ADDOPTS"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden} | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )


def must(command: list[str], *, cwd: Path) -> str:
    """Run a command that must succeed and return its output."""
    result = run(command, cwd=cwd)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed ({result.returncode}):\n{result.stdout}")
    return result.stdout


def build(wheels: Path) -> dict[str, Path]:
    """Build the source distribution and the wheel of every member. Returns the wheels by name."""
    must(["uv", "build", "--all-packages", "--no-sources", "--quiet", "--out-dir", str(wheels)], cwd=ROOT)
    return {distribution(path.name.split("-")[0]): path for path in wheels.glob("*.whl")}


def locked_versions(folder: Path) -> Path:
    """Write the locked versions as a constraints file."""
    export = ["uv", "export", "--frozen", "--quiet", "--no-hashes", "--no-emit-workspace", "--all-groups"]
    export += ["--no-emit-package", "msgspec"]  # GEM alone requires another version
    path = folder / "constraints.txt"
    path.write_text(must([*export, "--all-packages", "--all-extras", "--no-extra", "vllm"], cwd=ROOT), encoding="utf-8")
    return path


def resolution(versions: str, folder: Path) -> list[str]:
    """The options of ``uv pip install`` for the lowest, the locked or the newest versions of direct dependencies."""
    if versions == "lowest":
        return ["--resolution", "lowest-direct"]
    return ["--constraint", str(locked_versions(folder))] if versions == "locked" else ["--upgrade"]


def declared(name: str, extras: Iterable[str]) -> set[str]:
    """The third-party requirements that a member and the members that it needs declare, as written.

    uv takes the lowest version of a requirement only if it is an argument, and not one of a wheel.
    """
    by_name = {member.name: member for member in members()}
    found: set[str] = set()
    waiting, seen = [(name, frozenset(extras))], set[tuple[str, frozenset[str]]]()
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        member = by_name[here[0]]
        for requirement in [*member.dependencies, *(each for extra in here[1] for each in member.extras[extra])]:
            if distribution(requirement) in by_name:
                named = re.findall(r"\[(.*?)\]", requirement)
                waiting.append((distribution(requirement), frozenset(named[0].split(",") if named else ())))
            else:
                found.add(requirement)
    return found


def check(
    member: Member, extra: str, wheels: dict[str, Path], options: list[str], python: str, *, light: bool
) -> tuple[bool, str, str]:
    """Whether the member works alone, a one-line summary, and the full output."""
    with tempfile.TemporaryDirectory(prefix="package-matrix-") as name:
        folder = Path(name)
        must(["uv", "venv", "--quiet", "--no-project", "--python", python, "environment"], cwd=folder)
        interpreter = folder / "environment" / "bin" / "python"
        needed = closure(member.name, extra.split(",") if extra else ())
        ours = [f"{wheels[each]}" for each in sorted(needed & set(wheels))]
        runner = () if light else (*RUNNER, "torchvision") if "torch" in needed else RUNNER
        own = f"{member.name}[{extra}] @ {wheels[member.name].as_uri()}" if extra else str(wheels[member.name])
        install = ["uv", "pip", "install", "--quiet", "--python", str(interpreter), *options]
        lowest = declared(member.name, extra.split(",") if extra else ()) if "lowest-direct" in options else ()
        result = run([*install, own, *ours, *runner, *lowest], cwd=folder)
        if result.returncode:
            return False, "cannot be installed", result.stdout
        if light or member.module_folder is None:
            listed = run([str(interpreter.parent / "rlcore"), "plugins", "list", "--check"], cwd=folder)
            if listed.returncode or member.module_folder is None:
                return listed.returncode == 0, "rlcore plugins list --check", listed.stdout
            result = run([str(interpreter), "-I", "-c", IMPORTS, member.module_folder.name], cwd=folder)
            return result.returncode == 0, result.stdout.splitlines()[-1], result.stdout
        if member.tests is None:
            return False, "has no tests", ""
        shutil.copytree(member.tests, folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "tests" / "shared", folder / "shared", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
        result = run([str(interpreter), "-I", "-m", "pytest", "-q", "tests"], cwd=folder)
        closing = [
            line for line in result.stdout.splitlines() if re.search(r"\d+ (?:passed|failed|skipped|error)", line)
        ]
        return result.returncode == 0, closing[-1].strip("= ") if closing else "no tests ran", result.stdout


def main() -> int:
    """Check the members named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a member, or NAME[EXTRA]; default: all")
    parser.add_argument("--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", help="Python version")
    parser.add_argument(
        "--versions",
        choices=("lowest", "locked", "newest"),
        default="locked",
        help="of third-party dependencies",
    )
    parser.add_argument("--light", action="store_true", help="import all modules instead of running tests")
    parser.add_argument("--list", action="store_true", help="print the members as JSON and exit")
    arguments = parser.parse_args()
    by_name = {member.name: member for member in members()}
    if arguments.list:
        print(json.dumps(list(by_name)))
        return 0
    names = arguments.names or list(by_name)
    unknown = [name for name in names if name.partition("[")[0] not in by_name]
    if unknown:
        parser.error(f"unknown members: {', '.join(unknown)}; available: {', '.join(by_name)}")

    def one(name: str) -> tuple[str, bool]:
        started = time.monotonic()
        bare, _, extra = name.rstrip("]").partition("[")
        fine, summary, output = check(by_name[bare], extra, wheels, options, arguments.python, light=arguments.light)
        lines = [f"{'ok  ' if fine else 'FAIL'} {name:<26} {time.monotonic() - started:5.0f} s  {summary}"]
        lines += [f"       {line}" for line in output.splitlines() if not fine or line.startswith("SKIPPED")]
        print("\n".join(lines), flush=True)
        return name, fine

    with tempfile.TemporaryDirectory(prefix="package-matrix-") as folder:
        wheels = build(Path(folder) / "wheels")
        options = resolution(arguments.versions, Path(folder))
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            failed = [name for name, fine in threads.map(one, names) if not fine]
    print(f"package matrix, Python {arguments.python}: {len(names) - len(failed)} of {len(names)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
