"""A seeded fuzz run of 2,400 inputs over six kinds of input, with an oracle.

For each input, the command is run in a fork. The outcome is good when all of these hold:

- the status is 0, 1 or 2, so no signal and no internal error; 70 is right only for a bug in the command of a plugin;
- neither stream has a traceback;
- the command ends within 30 seconds, and no process of it is left;
- status 2 comes with a message that says how to fix the input: a row ``fix``, a list of problems, or the usage;
- input that is wrong by construction has another status than 0, and input that was changed without changing its meaning
  gives the same status and output as before;
- nothing is created besides what the command was asked to write, nothing at all with status 2, and the files that all
  cases copy are unchanged at the end.

``FUZZ_SCALE=10`` runs ten times as many inputs. ``FUZZ_CASE=recipe-0012`` runs one.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fuzz_case import Case, Judge, unchanged
from fuzz_folder_cases import checkpoints, model_folders
from fuzz_forks import Forks
from fuzz_known_cases import known
from fuzz_plugin_cases import install, plugin_answers
from fuzz_text_cases import SMALL, command_line, data_files, recipes, toml_of

COUNTS = {"known": 0, "words": 500, "recipes": 500, "data": 450, "models": 350, "checkpoints": 300, "plugins": 300}
JUDGES = 2
SHOWN = 40

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def judges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Judge]]:
    forks = Forks(JUDGES)
    yield [Judge(tmp_path_factory.mktemp("cases"), forks, number) for number in range(JUDGES)]
    forks.close()


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory, judges: list[Judge]) -> Path:
    """A run of two steps with its checkpoints, a model folder and a plugin, which cases copy or read."""
    folder = tmp_path_factory.mktemp("material")
    (folder / "small.toml").write_text(toml_of(SMALL), encoding="utf-8")
    arguments = ("run", "-c", str(folder / "small.toml"), f"runs={folder}", "name=run", "trackers.use=[jsonl]")
    assert judges[0].problem(Case(name="material", arguments=arguments)) is None
    install(folder / "site")
    return folder


def cases(kind: str, material: Path) -> Iterator[Case]:
    """The cases of a kind, all different in each run of the same numbers."""
    count = COUNTS[kind] * int(os.environ.get("FUZZ_SCALE", "1"))
    run = material / "run"
    made = {
        "known": lambda: known(run / "model"),
        "words": lambda: command_line(count),
        "recipes": lambda: recipes(count),
        "data": lambda: data_files(count),
        "models": lambda: model_folders(count, run / "model"),
        "checkpoints": lambda: checkpoints(count, run),
        "plugins": lambda: plugin_answers(count, material / "site", run / "model"),
    }
    one = os.environ.get("FUZZ_CASE")
    return (case for case in made[kind]() if one in (None, case.name))


def test_fuzz_run_has_at_least_2000_inputs() -> None:
    assert sum(COUNTS.values()) >= 2000


@pytest.mark.parametrize("kind", COUNTS)
def test_input_of_any_kind_gets_an_answer(kind: str, material: Path, judges: list[Judge]) -> None:
    before = unchanged(material)
    todo, lock = cases(kind, material), threading.Lock()

    def next_case() -> Case | None:
        with lock:
            return next(todo, None)

    def work(judge: Judge) -> list[str]:
        return [problem for case in iter(next_case, None) if (problem := judge.problem(case))]

    with ThreadPoolExecutor(len(judges)) as pool:
        problems = sorted(itertools.chain.from_iterable(pool.map(work, judges)))
    shown = "\n\n".join(problems[:SHOWN])
    assert not problems, f"{len(problems)} problems\n\n{shown}"
    assert unchanged(material) == before
