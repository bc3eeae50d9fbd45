"""``rlcore data``: list, prepare and show datasets. `rlcore.cli.rescore` implements rescoring."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from rlcore.cli.json_output import json_option, print_json
from rlcore.cli.rescore import newest_rollouts, rescore
from rlcore.cli.sheet import sheet
from rlcore.cli.text import excerpt, printable
from rlcore.config.layers import override_layers
from rlcore.config.tables import validate_options
from rlcore.containment import value_text
from rlcore.errors import DataError, NotInstalledError, PluginError, UserError, did_you_mean
from rlcore.json_files import json_lines, parse_json, read_json
from rlcore.plugins.registry import Registry, asked, make_component
from rlcore.session.checked_dataset import checked_dataset
from rlcore.session.exits import exits_reported
from rlcore.specs import DatasetSpec
from rlcore.terminal import say
from rlcore.types import media_hash, to_json
from rlcore.wording import counted


@click.group(
    short_help="Prepare and inspect data.",
    epilog="""\b
    Examples:
      rlcore data list
      rlcore data prepare gsm8k-tools --help-options
      rlcore data prepare gsm8k-tools source=gsm8k.jsonl out=train.jsonl
      rlcore data show train.jsonl -n 2
      rlcore data show runs/NAME/rollouts/evaluation-000000.jsonl.gz
      rlcore data show gsm8k-tools
      rlcore data sheet runs/NAME --out page.html
      rlcore data rescore runs/NAME reward.0.id=string-equal""",
)
def data() -> None:
    """Prepare and inspect data."""


data.add_command(rescore)
data.add_command(sheet)


@data.command(name="list", epilog="\b\nExample:\n  rlcore data list")
def list_() -> None:
    """List the datasets of the installed plugins."""
    registry = Registry()
    offers = registry.offers("dataset")
    if not offers:
        say("no installed plugin provides a dataset")
    width = max((len(offer.spec.id) for offer in offers), default=0)
    for offer in offers:
        spec = offer.spec
        prepare = "prepare, show" if isinstance(spec, DatasetSpec) and spec.prepare else "show"
        say(f"{spec.id:<{width}}  {spec.summary}  ({prepare}; {offer.plugin.origin})")


@data.command(
    epilog="""\b
    Examples:
      rlcore data prepare gsm8k-tools --help-options
      rlcore data prepare gsm8k-tools source=gsm8k.jsonl out=train.jsonl""",
)
@click.argument("name")
@click.argument("options", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--help-options", is_flag=True, help="List the options of this dataset.")
@json_option("Print the summary as JSON.")
@exits_reported()
def prepare(name: str, options: tuple[str, ...], help_options: bool, as_json: bool) -> None:
    """Convert raw files to training data. Options depend on the dataset."""
    registry = Registry()
    spec = registry.spec("dataset", name)
    if not isinstance(spec, DatasetSpec) or spec.prepare is None:
        raise UserError(f"the dataset {name!r} has nothing to prepare", fix=f"rlcore data show {name}")
    model = registry.load_for("dataset", spec, spec.prepare_config) if spec.prepare_config else None
    if help_options:
        from rlcore.cli.config import field_rows

        say(*(field_rows(model, "") if model is not None else ["this dataset takes no options"]))
        return
    values = validate_options(model, override_layers(options), subject=f"the options of rlcore data prepare {name}")
    function = registry.load_for("dataset", spec, spec.prepare)
    what = f"prepare of {registry.named('dataset', name)}"
    summary = asked(what, function, *(() if values is None else (values,))) or {}
    if not isinstance(summary, Mapping):
        raise PluginError(f"{what} must return a summary", found=value_text(summary), fix="return a dict")
    summary = {str(key): value for key, value in summary.items()}
    if as_json:
        print_json(summary)
        return
    width = max((len(key) for key in summary), default=0)
    for key, value in summary.items():
        say(f"{key:<{width}}  {value}")


@data.command(
    epilog="""\b
    Examples:
      rlcore data show train.jsonl -n 2
      rlcore data show runs/NAME
      rlcore data show runs/NAME/rollouts/train-000001.jsonl.gz
      rlcore data show gsm8k-tools --split evaluation""",
)
@click.argument("source", metavar="FILE|RUN|NAME")
@click.argument("options", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-n", "count", default=3, show_default=True, type=click.IntRange(min=1), help="Number of rows.")
@click.option("--split", default="train", show_default=True, help="Split of a dataset.")
@exits_reported()
def show(source: str, options: tuple[str, ...], count: int, split: str) -> None:
    """Show rows of a file (.jsonl, .json, .parquet, stored rollouts), the newest rollouts of a run, or a dataset."""
    path = Path(source).expanduser()
    if path.is_dir():
        path = newest_rollouts(path)
        say(str(path), "")
    is_file = path.exists() or path.suffix in {".jsonl", ".json", ".parquet", ".gz"}
    if not is_file and ":" not in source and source not in {spec.id for spec in Registry().specs("dataset")}:
        raise _source_not_found(source)
    rows = _file_rows(path) if is_file else _tasks(source, options, split)
    shown = 0
    for number, row in enumerate(itertools.islice(rows, count), start=1):
        say(*([] if number == 1 else [""]), f"row {number}", *_row_lines(row))
        shown = number
    if not shown:
        say("no rows")


def _tasks(name: str, options: tuple[str, ...], split: str) -> Iterator[Mapping[str, Any]]:
    registry = Registry()
    model = registry.config_model("dataset", name)
    config = validate_options(model, override_layers(options), subject=f"the options of the dataset {name}")
    target, what = registry.load("dataset", name), registry.named("dataset", name)
    dataset = checked_dataset(make_component(what, target, config), what)
    for task in dataset.tasks(split):
        row = {**to_json(task, encode_bytes=media_hash), "images": counted(len(task.images), "image")}
        if not task.images:
            del row["images"]
        yield row


def _source_not_found(source: str) -> DataError:
    ids = [spec.id for spec in Registry().specs("dataset")]
    near = None if "/" in source else did_you_mean(source, ids)
    return DataError(
        f"there is no file, run or dataset {source!r}",
        fix=near or "give a file, a run directory, or a dataset from rlcore data list",
    )


def _file_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if not path.is_file():
        raise DataError(f"there is no file {path}", fix="give a file, or the name of a dataset")
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    try:
        if path.suffix == ".json":
            tree = read_json(path)
            yield from (row if isinstance(row, dict) else {"value": row} for row in _rows_of(tree))
            return
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in json_lines(file):
                yield _json_row(line, f"{path}:{number}")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _unreadable(path, error) from None


def _rows_of(tree: Any) -> list[Any]:
    return tree if isinstance(tree, list) else [tree]


def _json_row(line: bytes, where: str) -> Mapping[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        fix = "correct the line"
        raise DataError("the line is not valid JSON", found=str(error), where=where, fix=fix) from None
    return row if isinstance(row, dict) else {"value": row}


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise NotInstalledError(f"reading {path} needs pyarrow", fix="pip install pyarrow") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
        for batch in file.iter_batches(batch_size=16):
            yield from batch.to_pylist()
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"cannot read {path}", found=printable(str(error)), fix="restore the file, or convert it again")


def _row_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a row, with conversations as messages; for a stored group, its first trajectory."""
    if set(row) == {"task", "trajectories"}:
        yield from _group_lines(row)
        return
    for key, value in row.items():
        if key == "messages" and isinstance(value, list):
            yield "  messages"
            yield from (line for message in value for line in _message_lines(message))
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=value_text)
            first, *others = excerpt(text)
            yield f"  {key}: {first}"
            yield from (f"    {line}" for line in others)


def _group_lines(row: Mapping[str, Any]) -> Iterator[str]:
    from rlcore.runs.records import group_from_json

    try:
        group = group_from_json(row, decode_bytes=str.encode)  # images are not shown, and not read
    except ValueError as error:
        fix = "give a file of rollouts/ of a run, or restore it"
        raise DataError("this is not a stored group", found=printable(str(error)), fix=fix) from None
    yield f"  task {group.task.id}"
    for trajectory in group.trajectories[:1]:
        metrics = trajectory.metrics
        reported = metrics.get("prompt_tokens", 0) + metrics.get("completion_tokens", 0)  # by an endpoint
        reported = int(reported) if math.isfinite(reported) else 0
        tokens = counted(sum(map(len, trajectory.segments)) or reported, "token")
        place = f"trajectory 1 of {len(group.trajectories)}"
        yield f"  {place}: {trajectory.stop}, {tokens}, reward {_reward(trajectory.reward)}"
        if group.rewards_G[1:]:
            yield f"  rewards of the other trajectories: {', '.join(map(_reward, group.rewards_G[1:]))}"
        for number, segment in enumerate(trajectory.segments):
            if number:
                yield f"    (context rewritten to {counted(len(segment.context), 'message')})"
            for turn in segment.turns:
                yield from (line for message in turn.messages for line in _message_lines(to_json(message)))
        if trajectory.failure is not None:
            yield f"  failure: {printable(str(trajectory.failure))}"


def _reward(value: float | None) -> str:
    return "not scored" if value is None else f"{value:g}"


def _message_lines(message: Any) -> Iterator[str]:
    if not isinstance(message, Mapping):
        yield f"    {printable(str(message))}"
        return
    content = message.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=value_text)
    parts = [printable(line) for line in (text or "").splitlines()]
    calls = message.get("tool_calls") or ()
    parts += [_call_line(call) for call in (calls if isinstance(calls, (list, tuple)) else (calls,))]
    if parts:
        yield f"    {printable(str(message.get('role', '?')))}: {parts[0]}"
        yield from (f"      {part}" for part in parts[1:])


def _call_line(call: Any) -> str:
    """A tool call, in rlcore's form or in that of the chat completions API."""
    inner = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(inner, Mapping):
        return f"→ {printable(str(call))}"
    arguments = inner.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=value_text)
    return f"→ {printable(str(inner.get('name', '?')))}({printable(str(inner.get('error') or text))})"
