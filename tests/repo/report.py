"""The ten slowest tests of several pytest runs, the skipped tests with their reasons, and the flaky tests.

``report.py FILE...`` reads JUnit files and the JSON files of `rerun_failed`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main(paths: list[str]) -> int:
    """Print the report of the files that exist."""
    files = [Path(path) for path in paths if Path(path).is_file()]
    cases = [case for path in files if path.suffix == ".xml" for case in ElementTree.parse(path).iter("testcase")]
    if not cases:
        print("no test ran")
        return 1
    print(f"the ten slowest of {len(cases)} tests:")
    for case in sorted(cases, key=lambda case: -float(case.get("time", "0")))[:10]:
        print(f"{float(case.get('time', '0')):8.1f} s  {case.get('classname')}::{case.get('name')}")
    skipped = Counter(skip.get("message", "no reason given") for case in cases for skip in case.iter("skipped"))
    print(f"{sum(skipped.values())} skipped")
    for reason, count in skipped.most_common():
        print(f"{count:8d} ×  {reason}")
    flaky = [one for path in files if path.suffix == ".json" for one in json.loads(path.read_text(encoding="utf-8"))]
    print(f"{len(flaky)} flaky{': failed in the full run, passed alone' if flaky else ''}")
    for one in flaky:
        print(f"         {one['test']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
