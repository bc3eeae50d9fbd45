"""The ten slowest tests of several pytest runs, and how many were skipped and why: ``report.py FILE.xml...``."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main(paths: list[str]) -> int:
    """Print the report of the JUnit files."""
    cases = [case for path in paths if Path(path).is_file() for case in ElementTree.parse(path).iter("testcase")]
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
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
