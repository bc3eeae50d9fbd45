"""``rlcore report``: runs as one HTML file, with the page of ``rlcore view`` and the answers that it asks for."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlcore.atomic_files import write_whole
from rlcore.errors import DataError, RlcoreError
from rlcore.images.encoding import data_uri, decode_image
from rlcore.plugin_calls import error_text
from rlcore.report.templates import source, template

from rlcore_view.library import Library
from rlcore_view.overview import overview
from rlcore_view.routes import answer, media
from rlcore_view.stored import Stored
from rlcore_view.thumbnails import have_pictures

TRAJECTORIES = 12
"""Trajectories of each run, unless another number is asked for."""
MOST_ROWS = 2_000
"""Rows of the tables of steps in a report. The steps of the trajectories come first, then the newest."""
MOST_BYTES = 8_000_000
"""Limit of all pictures and films of a report in bytes, so that it can be sent by mail. Later pictures are left out."""
MOST_SMALL_BYTES = 1_000_000
"""Limit of the small pictures in the tables of a run, which have about 4,000 bytes each."""
LARGEST_SIDE = 800
"""Larger pictures are reduced to this side in pixels."""
KEPT_BYTES = 32_000
"""A picture of at most this size keeps its own pixels; others become JPEG."""
MOST_CHARACTERS = 20_000_000
"""Limit of all groups of a report. Those of later trajectories are left out."""
MOST_METRICS = 5_000
"""Of longer metrics, every second line is kept, or every third one, and so on."""
LONGEST_TEXT = 4_000
"""Characters of a message in the text for readers without scripts."""
SHOWN = ("step", "reward/mean", "evaluation/accuracy", "evaluation/reward", "loss")
"""Metrics in the table for readers without scripts."""
MOST_LINES = 20
"""Steps in that table."""


@dataclass(slots=True)
class Contents:
    """What a report contains: the answers by their paths, as the page asks for them."""

    answers: dict[str, Any] = field(default_factory=dict)
    trajectories: int = 0
    pictures: int = 0
    """Bytes of the pictures and films so far."""
    left_out: int = 0
    """Pictures and films that are left out."""
    characters: int = 0
    """Of the groups so far."""
    dropped: int = 0
    """Trajectories that are left out, because the report is full."""

    def ask(self, library: Library, *parts: str | int) -> Any:
        """The answer of a path, which is kept."""
        found = self.answers[api_path(*parts)] = answer(library, "/".join(map(_encoded, parts)), {})
        return found

    def keep_picture(self, library: Library, run: str, name: str) -> None:
        """Keep a picture of a run, reduced, or a film, unless the report has no more room for it."""
        path = f"media/{_encoded(run)}/{name}"
        if path in self.answers:
            return
        try:
            uri = _uri(*media(library, path.removeprefix("media/")))
        except RlcoreError:
            return  # the page shows that it is missing
        if self.pictures + len(uri) > MOST_BYTES:
            self.left_out += 1
            return
        self.pictures += len(uri)
        self.answers[path] = uri


def write_report(runs: Sequence[Path], out: Path, *, trajectories: int = TRAJECTORIES) -> Contents:
    """Write runs as one HTML file, atomically.

    Args:
        runs: run directories
        out: the file, which is replaced if it exists
        trajectories: how many trajectories of each run to keep

    Raises:
        UserError: a path is no run, or the file cannot be written.
    """
    contents, text = report_text(runs, trajectories=trajectories)
    write_whole(out, text)
    return contents


def report_text(runs: Sequence[Path], *, trajectories: int = TRAJECTORIES) -> tuple[Contents, str]:
    """The HTML of a report. Raises `UserError` if a path is no run."""
    library, contents = Library(runs), Contents()
    listed = {**contents.ask(library, "runs"), "report": True}
    contents.answers[api_path("runs")] = listed
    shown = [_add_run(contents, library, line, trajectories) for line in listed["runs"]]
    return contents, _page(contents, shown)


def _add_run(contents: Contents, library: Library, line: dict[str, Any], trajectories: int) -> dict[str, Any]:
    """Add the answers about a run, and return what the text says about it."""
    try:
        return _text_of_run(contents, library, line, trajectories)
    except Exception as error:  # no damage of one run costs the others
        problem = line["problem"] or error_text(error)
        nothing = {"findings": [], "table": [], "about": "", "trajectories": []}
        return {"line": line, "facts": [("problem", problem)], **nothing}


def _text_of_run(contents: Contents, library: Library, line: dict[str, Any], trajectories: int) -> dict[str, Any]:
    name = line["id"]
    run = contents.ask(library, "runs", name)
    metrics = contents.ask(library, "runs", name, "metrics")
    rows = metrics["rows"] = metrics["rows"][:: -(-len(metrics["rows"]) // MOST_METRICS) or 1]
    findings = contents.ask(library, "runs", name, "findings")["findings"]
    _add_steps(contents, library, run)
    chosen = _chosen(library, run, trajectories)
    others = _others(contents, run, chosen)
    if others and len(chosen) > len(others):
        chosen = [*_chosen(library, run, trajectories - len(others)), *others]
    texts = [text for row in chosen if (text := _add_trajectory(contents, library, name, row)) is not None]
    about = _about(run, chosen) if chosen else ""
    counts = {"total": len(chosen), "searched": _size(library.run(name).stored)}
    kept = {"rows": chosen, **counts, "columns": [], "pictures": False, "about": about}
    contents.answers[api_path("runs", name, "find")] = kept
    if have_pictures(library.run(name).stored, chosen):
        kept["pictures"] = True
        _add_small_pictures(contents, library, run, chosen)
    names = ("recipe", "model", "environment", "state", "step", "command")
    return {
        "line": line,
        "facts": [(fact, str(run[fact])) for fact in names if run[fact] != ""],
        "findings": findings,
        "table": _table(rows),
        "about": f"{len(chosen)} of {counts['searched']:,}: {about}" if about else "",
        "trajectories": texts,
    }


def _chosen(library: Library, run: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The rows of the trajectories to keep: the best and the worst of the last evaluation and of the last step."""
    sources = [_rows(library, run, file) for file in _newest(run)]
    kept = list[dict[str, Any]]()
    for number, rows in enumerate(sources):
        share = -(-(count - len(kept)) // (len(sources) - number))  # a small evaluation leaves more to the step
        ordered = sorted(rows, key=lambda row: (row["reward"] is None, -(row["reward"] or 0.0)))
        best, others = ordered[: (share + 1) // 2], ordered[(share + 1) // 2 :]
        kept += best + others[max(0, len(others) - share // 2) :]
    return kept


UNUSUAL: Mapping[str, Callable[[dict[str, Any]], bool]] = {
    "an answer that is not scored": lambda row: row["reward"] is None,
    "an answer of a dropped group": lambda row: row.get("fate") == "dropped",
}
"""Trajectories of which a report has one, if a run has any."""


def _others(contents: Contents, run: dict[str, Any], chosen: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest rows of each kind of `UNUSUAL` that is not among those that are chosen."""
    files = [api_path("runs", run["id"], file["purpose"], file["step"]) for file in reversed(run["files"])]
    steps = [contents.answers[path]["rows"] for path in files if path in contents.answers]
    missing = [fits for fits in UNUSUAL.values() if not any(map(fits, chosen))]
    found = [next((row for rows in steps for row in rows if fits(row)), None) for fits in missing]
    return [row for number, row in enumerate(found) if row is not None and row not in found[:number]]


def _about(run: dict[str, Any], chosen: Sequence[dict[str, Any]]) -> str:
    """Which trajectories a report has."""
    names = [f"{'evaluation' if file['purpose'] == 'evaluation' else 'step'} {file['step']}" for file in _newest(run)]
    kinds = [kind for kind, fits in UNUSUAL.items() if any(map(fits, chosen))]
    return f"the best and the worst of {' and of '.join(names)}{''.join(f', and {kind}' for kind in kinds)}"


def _size(stored: Stored) -> int:
    """The number of trajectories of a run."""
    size = 0
    for file in stored.files():
        with suppress(DataError):
            size += overview(stored, file).rows[file.step]
    return size


def _add_steps(contents: Contents, library: Library, run: dict[str, Any]) -> None:
    """Keep the rows of as many steps as there is room for: those of the trajectories, then the newest."""
    left, done = MOST_ROWS, set[str]()
    for file in [*_newest(run), *reversed(run["files"])]:
        path = api_path("runs", run["id"], file["purpose"], file["step"])
        rows = [] if path in done else _rows(library, run, file)
        done.add(path)
        if rows and len(rows) <= left:
            left -= len(rows)
            contents.answers[path] = {"rows": rows, "unfinished": file["unfinished"], "pictures": False}
    for file in _newest(run):
        contents.ask(library, "runs", run["id"], file["purpose"], file["step"], "extremes")


def _add_small_pictures(
    contents: Contents, library: Library, run: dict[str, Any], chosen: Sequence[dict[str, Any]]
) -> None:
    """Keep small pictures of the trajectories, and of the groups of the newest steps as far as there is room."""
    rows, before = [*chosen], contents.pictures
    for file in _newest(run):
        step = contents.answers.get(api_path("runs", run["id"], file["purpose"], file["step"]))
        if step is not None:
            step["pictures"] = True
            firsts = {(row["step"], row["group"]): row for row in reversed(step["rows"])}  # as the table shows
            rows += reversed(firsts.values())
    for place in dict.fromkeys((row["purpose"], row["step"], row["group"], row["sibling"]) for row in rows):
        if contents.pictures - before < MOST_SMALL_BYTES:
            contents.keep_picture(library, run["id"], f"small/{'/'.join(map(str, place))}")


def _rows(library: Library, run: dict[str, Any], file: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a file of rollouts; none if it is damaged."""
    path = "/".join(map(_encoded, ("runs", run["id"], file["purpose"], file["step"])))
    try:
        return list(answer(library, path, {})["rows"])
    except RlcoreError:
        return []


def _newest(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The newest whole file of each purpose, evaluations first."""
    newest = {file["purpose"]: file for file in run["files"] if not file["unfinished"]}
    return [newest[purpose] for purpose in ("evaluation", "train") if purpose in newest]


def _add_trajectory(contents: Contents, library: Library, run: str, row: dict[str, Any]) -> dict[str, Any] | None:
    """Keep a trajectory with its siblings and its pictures, and return its text; None if its group is damaged."""
    place = ("runs", run, row["purpose"], row["step"], row["group"])
    path = api_path(*place)
    if contents.characters > MOST_CHARACTERS:
        contents.dropped += 1
        return None
    try:
        if path in contents.answers:
            group = contents.answers[path]
        else:
            group = contents.ask(library, *place)
            contents.characters += len(json.dumps(group))
        contents.ask(library, *place, row["sibling"], "tokens")
    except RlcoreError:
        return None
    contents.trajectories += 1
    one = next(each for each in group["trajectories"] if each["row"]["sibling"] == row["sibling"])
    turns = [turn for segment in one["segments"] for turn in segment["turns"]]
    messages = [message for turn in turns for message in turn["messages"]]
    for name in _media_of([*group["prompt"], *messages], one["segments"], turns):
        contents.keep_picture(library, run, name)
    reward = "not scored" if row["reward"] is None else f"reward {row['reward']:.3g}"
    return {
        "title": f"{row['purpose']} step {row['step']}, task {row['task']}, sibling {row['sibling']}: {reward}",
        "messages": [(message["role"], _text_of(message)) for message in messages],
    }


def _media_of(
    messages: Sequence[dict[str, Any]], segments: Sequence[dict[str, Any]], turns: Sequence[dict[str, Any]]
) -> Iterator[str]:
    """The names of all pictures and films: those of messages first, and films of notes before the many of arrays."""
    yield from (part["image"] for message in messages for part in message["parts"] if "image" in part)
    for note in (turn["note"] for turn in turns if turn["note"]):
        shown = [*note["pictures"], *(picture for cell in note["cells"] for picture in cell["pictures"])]
        yield from (each["name"] for each in [*shown, *note["films"]])
    yield from (frame for segment in segments for series in segment["series"] for frame in series["frames"])


def _text_of(message: dict[str, Any]) -> str:
    parts = [part.get("text", "[picture]") for part in message["parts"]]
    parts += [f"{call['name']} {call['arguments'] or call['code'] or call['error']}" for call in message["calls"]]
    return "\n".join(parts)


def _table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A table of a few metrics, with a header; empty if there are none."""
    names = [name for name in SHOWN if any(row.get(name) is not None for row in rows)]
    every = max(1, -(-len(rows) // MOST_LINES))
    lines = [["" if (value := row.get(name)) is None else f"{value:.4g}" for name in names] for row in rows[::every]]
    return [names, *lines] if len(names) > 1 else []


def _page(contents: Contents, runs: Sequence[dict[str, Any]]) -> str:
    """The file. Its policy permits its own script and style, and loads nothing."""
    script, style = _bundled("view.js"), _bundled("view.css")
    answers = json.dumps(contents.answers, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return template("report.html", "rlcore_view").render(
        title=f"Report of {', '.join(run['line']['id'] for run in runs)}",
        policy=f"default-src 'none'; img-src data:; media-src data:; script-src {_hash(script)}; "
        f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'",
        script=script,
        style=style,
        answers=answers.replace("<", "\\u003c"),  # no text can end the element
        runs=runs,
        longest=LONGEST_TEXT,
    )


def api_path(*parts: str | int) -> str:
    """The path of an answer in the page; see ``pathOf`` in ``page/src/api.ts``."""
    return f"api/{'/'.join(map(_encoded, parts))}"


def _encoded(part: str | int) -> str:
    """A part of a path as ``encodeURIComponent`` writes it."""
    return quote(str(part), safe="!~*'()")


def _bundled(name: str) -> str:
    return source(f"bundle/{name}", "rlcore_view")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _uri(data: bytes, type: str) -> str:
    """The data URI of a picture, reduced, or of a film. Raises `DataError` if a picture is damaged."""
    if type.startswith("video/"):
        return f"data:{type};base64,{base64.b64encode(data).decode()}"
    image = decode_image(data)
    if len(data) <= KEPT_BYTES and max(image.size) <= LARGEST_SIDE:
        return data_uri(data)
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    written = io.BytesIO()
    image.convert("RGB").save(written, format="JPEG", quality=85)
    return data_uri(written.getvalue())
