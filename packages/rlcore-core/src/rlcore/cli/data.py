"""``rlcore data``: list, prepare, label and show datasets. `rlcore.cli.rescore` implements rescoring."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from rlcore.abilities import ConversationDataset
from rlcore.cli.file_images import FileImages
from rlcore.cli.flags import option_layers
from rlcore.cli.json_output import json_option, print_json
from rlcore.cli.rescore import newest_rollouts, rescore
from rlcore.cli.row_lines import Shown, row_lines
from rlcore.cli.sheet import sheet
from rlcore.cli.shown_images import ReadImage, ShownImages
from rlcore.cli.text import printable
from rlcore.config.layers import override_layers
from rlcore.config.tables import validate_options
from rlcore.errors import DataError, NotInstalledError, PluginError, UserError, did_you_mean
from rlcore.json_files import json_lines, parse_json, read_json
from rlcore.plugin_calls import value_text
from rlcore.plugins.registry import Registry, asked, make_component
from rlcore.runs.records import blobs_of
from rlcore.session.checked_dataset import checked_dataset
from rlcore.session.exits import exits_reported
from rlcore.terminal import say
from rlcore.types import Demonstration, Task, media_hash, to_json
from rlcore.wording import counted


@click.group(
    short_help="Prepare and inspect data.",
    epilog="""\b
    Examples:
      rlcore data list
      rlcore data prepare gsm8k-tools --help-options
      rlcore data prepare gsm8k-tools source=gsm8k.jsonl out=train.jsonl
      rlcore data label NAME --help-options
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
        verbs = [verb for verb in ("prepare", "label") if getattr(spec, verb, None)]
        say(f"{spec.id:<{width}}  {spec.summary}  ({', '.join([*verbs, 'show'])}; {offer.plugin.origin})")


@data.command(
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
    Examples:
      rlcore data prepare gsm8k-tools --help-options
      rlcore data prepare gsm8k-tools source=gsm8k.jsonl out=train.jsonl
      rlcore data prepare gsm8k-tools --source gsm8k.jsonl --out train.jsonl""",
)
@click.argument("name")
@click.argument("options", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--help-options", is_flag=True, help="List the options of this dataset.")
@json_option("Print the summary as JSON.")
@exits_reported()
def prepare(name: str, options: tuple[str, ...], help_options: bool, as_json: bool) -> None:
    """Convert raw files to training data. Options depend on the dataset."""
    _work("prepare", name, options, help_options=help_options, as_json=as_json)


@data.command(
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
    Examples:
      rlcore data label NAME --help-options
      rlcore data label NAME model=qwen2.5-vl-72b base_url=http://localhost:8000/v1 out=labels.jsonl dry_run=true
      rlcore data label NAME model=qwen2.5-vl-72b base_url=http://localhost:8000/v1 out=labels.jsonl

    \b
    NAME is a dataset that rlcore data list marks with "label". The same command again continues where it stopped.""",
)
@click.argument("name")
@click.argument("options", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--help-options", is_flag=True, help="List the options of this dataset.")
@json_option("Print the summary as JSON.")
@exits_reported()
def label(name: str, options: tuple[str, ...], help_options: bool, as_json: bool) -> None:
    """Let a teacher model write labels for recorded data. Options depend on the dataset."""
    _work("label", name, options, help_options=help_options, as_json=as_json)


def _work(verb: str, name: str, options: tuple[str, ...], *, help_options: bool, as_json: bool) -> None:
    """Run the function of a dataset that implements a command, and print its summary."""
    registry = Registry()
    spec = registry.spec("dataset", name)
    target: str | None = getattr(spec, verb, None)
    if target is None:
        able = [f"rlcore data {verb} {other.id}" for other in registry.specs("dataset") if getattr(other, verb, None)]
        raise UserError(f"the dataset {name!r} has nothing to {verb}", fix=", or ".join(able) or "rlcore data list")
    path: str | None = getattr(spec, f"{verb}_config")
    model = registry.load_for("dataset", spec, path) if path else None
    if help_options:
        from rlcore.cli.config import field_rows

        say(*(field_rows(model, "") if model is not None else ["this dataset takes no options"]))
        return
    layers = option_layers(options, model)
    values = validate_options(model, layers, subject=f"the options of rlcore data {verb} {name}")
    function = registry.load_for("dataset", spec, target)
    what = f"{verb} of {registry.named('dataset', name)}"
    summary = asked(what, function, *(() if values is None else (values,)), takes_long=True) or {}
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
@click.option(
    "--images",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the images to this folder.",
)
@exits_reported()
def show(source: str, options: tuple[str, ...], count: int, split: str, images: Path | None) -> None:
    """Show rows of a file (.jsonl, .json, .parquet, stored rollouts), the newest rollouts of a run, or a dataset.

    A dataset shows its tasks, or the conversations for supervised training if it has no tasks.

    The images of a file are written to the folder FILE.images.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        path = newest_rollouts(path)
        say(str(path), "")
    is_file = path.exists() or path.suffix in {".jsonl", ".json", ".parquet", ".gz"}
    if not is_file and ":" not in source and source not in {spec.id for spec in Registry().specs("dataset")}:
        raise _source_not_found(source)
    rows = _rows_with_images(path) if is_file else _rows_of_dataset(source, options, split)
    pictures = ShownImages(images, path.with_name(f"{path.name}.images") if is_file else None)
    shown = 0
    for number, (row, read) in enumerate(itertools.islice(rows, count), start=1):
        say(*([] if number == 1 else [""]), f"row {number}")
        for line in row_lines(row):
            if isinstance(line, Shown):
                pictures.show(line.sha256, read)
            else:
                say(line)
        shown = number
    if not shown:
        say("no rows")


def _rows_with_images(path: Path) -> Iterator[tuple[Mapping[str, Any], ReadImage]]:
    images = FileImages(_image_folder(path), blobs_of(path))
    return ((row, images.read) for row in images.marked(_file_rows(path)))


def _image_folder(path: Path) -> Path:
    """The folder that the paths of images are relative to: that of the file, unless its metadata names another."""
    if path.suffix == ".parquet" and path.is_file():
        with contextlib.suppress(ImportError, OSError, ValueError, KeyError, TypeError):
            import pyarrow.parquet

            return Path(json.loads(pyarrow.parquet.read_schema(path).metadata[b"rlcore"])["images"])
    return path.parent


def _rows_of_dataset(name: str, options: tuple[str, ...], split: str) -> Iterator[tuple[Mapping[str, Any], ReadImage]]:
    """The tasks of a split. A split without any has the conversations of supervised training."""
    registry = Registry()
    model = registry.config_model("dataset", name)
    config = validate_options(model, override_layers(options), subject=f"the options of the dataset {name}")
    target, what = registry.load("dataset", name), registry.named("dataset", name)
    dataset = checked_dataset(make_component(what, target, config), what)
    found: Sequence[Task | Demonstration] = dataset.tasks(split)
    if not found and isinstance(dataset, ConversationDataset):
        found = dataset.conversations(split)
    for one in found:
        known = {media_hash(image): image for image in one.images}
        row = {**to_json(one, encode_bytes=media_hash), "images": counted(len(one.images), "image")}
        for optional in ("images", "environment", "tools"):
            if not getattr(one, optional, None):
                row.pop(optional, None)
        yield row, partial(_known_image, known)


def _known_image(known: Mapping[str, bytes], sha256: str) -> bytes:
    if sha256 not in known:
        raise DataError("the row does not contain this image")
    return known[sha256]


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
