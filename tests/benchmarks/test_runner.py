"""The runner of benchmarks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``run.py`` with an empty folder of benchmarks."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(HERE), *sys.path])
    for name in ("comparison", "fake"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location("benchmark_runner", HERE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HERE", tmp_path)
    return module


def write(runner: ModuleType, ours: str, peer: str, floor: float) -> None:
    """Write a benchmark ``fake``. Its sides are expressions of the number of the call, ``n``."""
    source = f'''"""A made-up one."""
import itertools
from comparison import Comparison
VERSIONS = ("pytest", "no-such-distribution")
calls = itertools.count()
def comparisons():
    peers = itertools.count()
    return [
        Comparison(name="easy", ours=lambda: 1.0, peer=100.0, floor=1.0),
        Comparison(name="one", ours=lambda: (lambda n: {ours})(next(calls)), peer={peer}, floor={floor}),
    ]
'''
    (runner.HERE / "fake.py").write_text(source, encoding="utf-8")


@pytest.mark.parametrize(
    ("ours", "peer", "floor", "status", "last"),
    [
        ("2.0 + 0.1 * (n % 2)", "lambda: 5.0", 2.5, 0, "fake: 2.50 (floor 2.5)"),
        ("2.0", "lambda: 4.9", 2.5, 1, "fake: 2.45 (floor 2.5)"),
        ("0.1", "0.15", 1.0, 0, "fake: 1.50 (floor 1)"),
        ("0.2", "0.15", 1.0, 1, "fake: 0.75 (floor 1)"),
        ("1.0 if n < 4 else 2.0", "lambda: 5.0", 2.5, 3, "fake: 5.00 (floor 2.5)"),
    ],
)
def test_last_line_and_exit_status_use_the_minima(
    runner: ModuleType, capsys: pytest.CaptureFixture[str], ours: str, peer: str, floor: float, status: int, last: str
) -> None:
    write(runner, ours, peer, floor)
    assert runner.names() == ["fake"]
    assert runner.run("fake", 6, []) == status
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == last
    assert ("inconclusive" in printed) == (status == 3)
    assert "no-such-distribution (not installed)" in printed


@pytest.mark.parametrize(("right", "status"), [(20, 0), (19, 1)])
def test_counting_benchmark(runner: ModuleType, capsys: pytest.CaptureFixture[str], right: int, status: int) -> None:
    source = f'"""A made-up one."""\nVERSIONS = ()\ndef count(): return {right}, 20, "identical"\n'
    (runner.HERE / "fake.py").write_text(source, encoding="utf-8")
    assert runner.run("fake", 6, []) == status
    assert capsys.readouterr().out.splitlines()[-1] == f"fake: {right} of 20 identical (floor 20)"


def test_several_benchmarks_print_a_table(
    runner: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(runner, "2.0", "lambda: 4.9", 2.5)
    (runner.HERE / "counted.py").write_text('"""A made-up one."""\nVERSIONS = ()\ndef count(): return 20, 20, "same"\n')
    monkeypatch.delitem(sys.modules, "counted", raising=False)
    monkeypatch.setattr(sys, "argv", ["run.py", "counted", "fake"])
    assert runner.main() == 1
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "| benchmark | ratio | floor | ours | peer | |",
        "|---|---|---|---|---|---|",
        "| `counted` | 20 same | 20 | | | reached |",
        "| `fake/easy` | 100.00 | 1 | 1 s | 100 s | reached |",
        "| `fake/one` | 2.45 | 2.5 | 2 s | 4.9 s | missed |",
    ]


def test_list_and_unknown_name() -> None:
    listed = subprocess.run([sys.executable, str(HERE / "run.py")], capture_output=True, text=True, check=True)
    assert "startup" in listed.stdout.splitlines()
    assert not {"run", "comparison", "test-runner"} & set(listed.stdout.splitlines())
    unknown = subprocess.run([sys.executable, str(HERE / "run.py"), "startupp"], capture_output=True, check=False)
    assert unknown.returncode == 2
