"""Run pytest, then run each failed test once more alone: ``rerun_failed.py --reports FOLDER NAME -- ARGUMENTS``.

The exit status is 0 if no test fails twice. A test that fails in the full run and passes alone is flaky: both logs are
printed, indented, and the test is listed in ``FOLDER/NAME-flaky.json``. The JUnit file is ``FOLDER/NAME.xml``. After
more than ten failures, or an error of pytest itself, no test is repeated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

MOST = 10
"""The largest number of failures that are rerun."""
TESTS_FAILED = 1
"""The exit status of pytest when tests failed and no other error occurred."""
PYTEST = (sys.executable, "-m", "pytest")


@dataclass(frozen=True, slots=True)
class Flaky:
    """A test that failed in the full run and passed alone."""

    test: str
    first: str
    """Its log in the report of the full run."""
    alone: str
    """The output of the second run."""


def failures(report: Path) -> dict[str, str]:
    """Logs of the failed tests by node id, from a JUnit file of the family xunit1, which includes file names."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        logs = [f"{part.get('message', '')}\n{part.text or ''}" for part in case if part.tag in {"failure", "error"}]
        if logs:
            logs += [part.text or "" for part in case if part.tag in {"system-out", "system-err"}]
            node = _node(case)
            found[node] = "\n".join(filter(None, (found.get(node), *logs)))
    return found


def _node(case: ElementTree.Element) -> str:
    """``folder/test_file.py::Class::test[parameter]``; only the file if its collection failed."""
    file, name = case.get("file"), case.get("name", "")
    if file is None:
        return name
    module = file.removesuffix(".py").replace("/", ".")
    classes = case.get("classname", "").removeprefix(module).strip(".")
    return "::".join(filter(None, (file, *classes.split("."), name)))


def rerun(node: str) -> tuple[bool, str]:
    """Whether a test passes alone, and the output of its run."""
    # An empty -m selects the test regardless of its markers.
    command = [*PYTEST, "-m", "", "-p", "no:cacheprovider", node]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode == 0, done.stdout


def main(arguments: Sequence[str]) -> int:
    """Run the tests, rerun the failed ones and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reports", type=Path, required=True, help="folder for NAME.xml and NAME-flaky.json")
    parser.add_argument("name")
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="passed to pytest")
    options = parser.parse_args(arguments)
    report = options.reports / f"{options.name}.xml"
    xml = ["-o", "junit_family=xunit1", f"--junit-xml={report}"]
    status = subprocess.run([*PYTEST, *options.arguments, *xml], check=False).returncode
    if status != TESTS_FAILED:
        return status
    failed = failures(report)
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed: no reruns, as the limit is {MOST}")
        return status
    flaky = []
    for node, first in failed.items():
        passed, alone = rerun(node)
        print(f"\n{node}: failed in the full run, {'passed alone: flaky' if passed else 'failed again alone'}")
        print(_indented("full run", first), _indented("alone", alone), sep="\n", flush=True)
        if passed:
            flaky.append(Flaky(node, first, alone))
    if flaky:
        listed = json.dumps([asdict(each) for each in flaky], indent=1)
        (options.reports / f"{options.name}-flaky.json").write_text(listed, encoding="utf-8")
    return 0 if len(flaky) == len(failed) else status


def _indented(title: str, log: str) -> str:
    """The log, indented so that no line looks like a summary line of the full run."""
    return f"  {title}:\n{textwrap.indent(log.rstrip(), '    | ', lambda line: True)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
