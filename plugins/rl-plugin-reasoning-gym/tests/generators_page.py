"""Writes GENERATORS.md: what works of each generator of the installed reasoning-gym.

python plugins/rl-plugin-reasoning-gym/tests/generators_page.py
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rl_plugin_reasoning_gym.library import LibraryError, library

PAGE = Path(__file__).parents[1] / "GENERATORS.md"
TASKS = 4
"""Number of tasks of each generator."""
FAR = 5000
"""Number of an entry beyond the default size of the data sets."""
NONSENSE = "zq"
HEAD = """\
# Generators

What works of reasoning-gym {version}, measured with {tasks} tasks of each of its {count} generators.
`python plugins/rl-plugin-reasoning-gym/tests/generators_page.py` writes this page.

| | Generators |
|---|---|
| make tasks | {made} |
| have an answer, which scores 1 | {right} |
| score 0 for an empty answer | {empty} |
| have a curriculum, whose level 0 makes tasks | {levels} |

*Nonsense* is the score of the answer `zq`. A verifier that raises an exception gives 0.

| Generator | Own answer | Empty answer | Nonsense | Level 0 |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was found for one generator, as it is printed."""

    name: str
    own: str
    empty: str
    nonsense: str
    level: str

    def line(self) -> str:
        return f"| `{self.name}` | {self.own} | {self.empty} | {self.nonsense} | {self.level} |"


def generator(name: str, level: int | None = None) -> dict[str, Any]:
    return {"name": name, "level": level, "options": {}}


def scores(name: str, entries: list[dict[str, Any]], answers: list[str]) -> str:
    """The different scores of the answers in the format of the default reward."""
    found = set()
    for entry, answer in zip(entries, answers, strict=True):
        try:
            response = f"<answer>{answer}</answer>"
            value = library().ask("score", generator=generator(name), entry=entry, response=response, tag="answer")
            found.add(f"{value:g}")
        except LibraryError as error:
            found.add("raises" if "raised" in error.message else "ended")
    return ", ".join(sorted(found))


def examined(name: str) -> Row:
    entries = library().ask("make", generator=generator(name), seed=0, start=0, count=TASKS - 1)
    entries += library().ask("make", generator=generator(name), seed=0, start=FAR, count=1)
    answers = [entry["answer"] for entry in entries]
    return Row(
        name=name,
        own="none" if None in answers else scores(name, entries, answers),
        empty=scores(name, entries, [""] * len(entries)),
        nonsense=scores(name, entries, [NONSENSE] * len(entries)),
        level=level_zero(name),
    )


def level_zero(name: str) -> str:
    try:
        library().ask("make", generator=generator(name, 0), seed=0, start=0, count=1)
    except LibraryError as error:
        return "no curriculum" if "No curriculum" in error.message else f"fails: {error.message.partition(': ')[2]}"
    return "works"


def page(rows: list[Row]) -> str:
    head = HEAD.format(
        version=version("reasoning-gym"),
        tasks=TASKS,
        count=len(rows),
        made=len(rows),
        right=sum(row.own == "1" for row in rows),
        empty=sum(row.empty == "0" for row in rows),
        levels=sum(row.level == "works" for row in rows),
    )
    return head + "".join(row.line() + "\n" for row in rows)


def written() -> str:
    return page([examined(name) for name in library().ask("names")])


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
