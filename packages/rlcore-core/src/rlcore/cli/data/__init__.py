"""``rlcore data``: list, prepare, label and show datasets, show stored rollouts, and score them again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from rlcore.abilities import ConversationDataset, PreferenceDataset
from rlcore.cli.data.exporting import export_
from rlcore.cli.data.rescoring import rescore
from rlcore.cli.data.rows import ReadImage, Shown, ShownImages, file_rows, files_of_data, row_lines
from rlcore.cli.data.stored import Selection, is_of_run, show_rollouts
from rlcore.cli.output import json_option, print_json
from rlcore.config.fields import annotation_of, union_members
from rlcore.config.layers import COMMAND_LINE, Layer, override_layers, parse_value
from rlcore.config.messages import Problem, ProblemsError
from rlcore.config.schema import LARGEST as LARGEST
from rlcore.config.schema import Table
from rlcore.config.tables import validate_options
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.data.files import hub_download, may_be_on_hub
from rlcore.errors import DataError, PluginError, UserError, did_you_mean
from rlcore.plugin_calls import value_text
from rlcore.plugins.registry import Registry, asked, make_component
from rlcore.rollouts.conditions import Where
from rlcore.session.datasets import checked_dataset, rows_told
from rlcore.session.exits import exits_reported
from rlcore.types import Demonstration, Preference, Task, media_hash, to_json

MOST_ROWS = 2**31 - 1
"""Limit of the number of rows to show."""


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
      rlcore data rescore runs/NAME reward.0.id=string-equal
      rlcore data export runs/NAME --format parquet""",
)
def data() -> None:
    """Prepare and inspect data."""


data.add_command(rescore)
data.add_command(export_)


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


def _command(verb: str, help: str, epilog: str) -> None:
    """Add a command that runs the function of a dataset which implements it, and prints its summary."""

    @data.command(verb, help=help, epilog=epilog, context_settings={"ignore_unknown_options": True})
    @click.argument("name")
    @click.argument("options", nargs=-1, metavar="[KEY=VALUE]...")
    @click.option("--help-options", is_flag=True, help="List the options of this dataset.")
    @json_option("Print the summary as JSON.")
    @exits_reported()
    def work(name: str, options: tuple[str, ...], help_options: bool, as_json: bool) -> None:
        registry = Registry()
        spec = registry.spec("dataset", name)
        target: str | None = getattr(spec, verb, None)
        if target is None:
            able = [
                f"rlcore data {verb} {other.id}" for other in registry.specs("dataset") if getattr(other, verb, None)
            ]
            raise UserError(f"the dataset {name!r} has nothing to {verb}", fix=", or ".join(able) or "rlcore data list")
        path: str | None = getattr(spec, f"{verb}_config")
        model = registry.load_for("dataset", spec, path) if path else None
        if help_options:
            from rlcore.cli.config import field_rows

            say(*(field_rows(model, "") if model is not None else ["this dataset takes no options"]))
            return
        layers = _option_layers(options, model)
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


_command(
    "prepare",
    "Convert raw files to training data. Options depend on the dataset.",
    """\b
    Examples:
      rlcore data prepare gsm8k-tools --help-options
      rlcore data prepare gsm8k-tools source=gsm8k.jsonl out=train.jsonl
      rlcore data prepare gsm8k-tools --source gsm8k.jsonl --out train.jsonl""",
)
_command(
    "label",
    "Let a teacher model write labels for recorded data. Options depend on the dataset.",
    """\b
    Examples:
      rlcore data label NAME --help-options
      rlcore data label NAME model=qwen2.5-vl-72b base_url=http://localhost:8000/v1 out=labels.jsonl dry_run=true
      rlcore data label NAME model=qwen2.5-vl-72b base_url=http://localhost:8000/v1 out=labels.jsonl

    \b
    NAME is a dataset that rlcore data list marks with "label". The same command again continues where it stopped.""",
)


@data.command(
    epilog="""\b
    Examples:
      rlcore data show train.jsonl -n 2
      rlcore data show openai/gsm8k/main --split evaluation
      rlcore data show gsm8k-tools --split evaluation
      rlcore data show runs/NAME                                            the newest rollouts
      rlcore data show runs/NAME --step 7 --worst                           the lowest rewards of a step
      rlcore data show runs/NAME --step 7 --where 'reward == 0 and stop == "length"'
      rlcore data show runs/NAME --step all --task 12 --list                a task in all steps
      rlcore data show runs/NAME --step 7 --group 3 --siblings              siblings beside each other
      rlcore data show runs/NAME --step 7 --tokens ratio                    the highest ratios
      rlcore data show runs/NAME --step 7 --times                           what took how long""",
)
@click.argument("source", metavar="FILE|FOLDER|RUN|NAME")
@click.argument("options", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-n", "count", default=3, show_default=True, type=click.IntRange(1, MOST_ROWS), help="Number of rows.")
@click.option("--split", default="train", show_default=True, help="Split of a dataset.")
@click.option(
    "--images",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the images to this folder.",
)
@click.option("--step", "steps", metavar="STEP", help="Of a run: a step, a range such as 3-9, or all.")
@click.option(
    "--purpose", type=click.Choice(["train", "evaluation"]), help="Of a run: rollouts of training or evaluation."
)
@click.option("--where", metavar="CONDITION", help="Trajectories that meet a condition on their columns.")
@click.option("--task", metavar="ID", help="Trajectories of a task.")
@click.option(
    "--text", metavar="TEXT", help="Trajectories with a message or a tool call that contains a text, in any case."
)
@click.option("--group", type=click.IntRange(0, MOST_ROWS), help="Trajectories of a group of a step.")
@click.option(
    "--worst", "order", flag_value="worst", help="The lowest rewards first; with --tokens, the lowest numbers."
)
@click.option("--best", "order", flag_value="best", help="The highest rewards first.")
@click.option("--list", "view", flag_value="list", help="One line for each trajectory.")
@click.option("--siblings", "view", flag_value="siblings", help="The siblings of a group beside each other.")
@click.option("--times", "view", flag_value="times", help="How long turns, tools, cells, judges and rewards took.")
@click.option("--tokens", metavar="COLUMN", help="The tokens with the highest ratio, gap, advantage, entropy, ….")
@json_option("Print the columns of the trajectories as JSON lines.")
@exits_reported()
def show(
    source: str,
    options: tuple[str, ...],
    count: int,
    split: str,
    images: Path | None,
    steps: str | None,
    purpose: str | None,
    where: str | None,
    task: str | None,
    text: str | None,
    group: int | None,
    order: str | None,
    view: str | None,
    tokens: str | None,
    as_json: bool,
) -> None:
    """Show rows of a file (.jsonl, .json, .parquet), stored rollouts of a run, or a dataset.

    Rows are also shown of a folder of such files, and of a data set in the hub's cache, by its name OWNER/NAME.

    A dataset shows its preferences, or else its tasks, or else its conversations for supervised training.

    The images of a file are written to the folder FILE.images; those of a run are files in its folder media/.

    The columns of a trajectory are step, group, sibling, task, environment, reward, stop, failure, tokens (that were
    sampled), turns; mean and spread of the rewards of its group; fate (kept, dropped, carried), why, excluded,
    trained_step, staleness; temperature, seed; and the ids of rewards and the names of its metrics, as in
    metrics["tool_errors"].
    """
    path = Path(source).expanduser()
    files = files_of_data(source, path, split)
    selection = Selection(
        count=count,
        purpose=purpose,
        steps=steps,
        where=Where.parse(where) if where is not None else None,
        task=task,
        text=text,
        group=group,
        order=order,
        view="json" if as_json else view or "full",
        tokens=tokens,
    )
    if not files and (path.is_dir() or is_of_run(path)):
        show_rollouts(path, selection, images)
        return
    if not files and (path.is_file() or path.suffix in {".jsonl", ".json", ".parquet", ".gz"}):
        files = [path]
    if not files and ":" not in source and source not in {spec.id for spec in Registry().specs("dataset")}:
        raise _source_not_found(source)
    if selection.selects:
        raise UserError(
            "only the stored rollouts of a run can be searched",
            found=source,
            fix="give a run, or a file in its rollouts/",
        )
    rows = itertools.chain.from_iterable(map(file_rows, files)) if files else _rows_of_dataset(source, options, split)
    pictures = ShownImages(images, path.with_name(f"{path.name}.images") if files == [path] else None)
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


def _rows_of_dataset(name: str, options: tuple[str, ...], split: str) -> Iterator[tuple[Mapping[str, Any], ReadImage]]:
    """The tasks of a split. One without any has the conversations of supervised training; preferences come first."""
    registry = Registry()
    model = registry.config_model("dataset", name)
    config = validate_options(model, override_layers(options), subject=f"the options of the dataset {name}")
    target, what = registry.load("dataset", name), registry.named("dataset", name)
    dataset = checked_dataset(make_component(what, target, config), what)
    found: Sequence[Task | Demonstration | Preference] = dataset.tasks(split)
    if isinstance(dataset, PreferenceDataset) and (preferences := dataset.preferences(split)):
        found = preferences
    if not found and isinstance(dataset, ConversationDataset):
        found = dataset.conversations(split)
    for line in rows_told(dataset, split):
        say(line)
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
        fix=near
        or "give a file, a run directory, or a dataset from rlcore data list"
        + (f"; for a data set of the hub, run: {hub_download(source)}" if may_be_on_hub(source) else ""),
    )


def _option_layers(arguments: Sequence[str], model: type[BaseModel] | None) -> list[Layer]:
    """Return one layer for each option.

    ``--name value`` and ``--name=value`` set the key ``name``, or the key that `Table.FLAGS` of the model assigns to
    it. A flag of a key that is true or false needs no value. Hyphens and underscores are equal.

    Raises:
        ConfigError: all options with an unknown name, without a value, or of another form.
    """
    keys = _keys_by_flag(model)
    own: list[str] = []
    layers: list[Layer] = []
    problems: list[Problem] = []
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        if not argument.startswith("--"):
            own.append(argument)
            continue
        flag, equals, value = argument.partition("=")
        key = keys.get(flag[2:].replace("-", "_"))
        kinds = set(union_members(annotation_of(model, (key,)))) if model is not None and key is not None else set()
        origin = f"{COMMAND_LINE}{argument}"
        if not equals and bool in kinds:
            value = "true"
        elif not equals and waiting and not waiting[-1].startswith("--") and (key or "=" not in waiting[-1]):
            value = waiting.pop()
            origin = f"{origin} {value}"
        elif not equals and key is not None:
            reason = f"needs a value: {flag} VALUE"
            problems.append(Problem(kind="bad override", path=flag, origin=origin, reason=reason))
        if key is None:
            reason = _nearest(flag, keys)
            problems.append(Problem(kind="unknown key", path=flag, origin=origin, reason=reason))
        else:
            found = value if str in kinds else parse_value(value)
            layers.append(Layer(tree={key: found}, origins={(key,): origin}))
    try:
        layers += override_layers(own)
    except ProblemsError as error:
        problems += error.problems
    if problems:
        raise ProblemsError(problems, subject="the options")
    return layers


def _keys_by_flag(model: type[BaseModel] | None) -> Mapping[str, str]:
    if model is None:
        return {}
    keys = {name: name for name in model.model_fields}
    return {**model.FLAGS, **keys} if issubclass(model, Table) else keys


def _nearest(flag: str, keys: Mapping[str, str]) -> str:
    near = did_you_mean(flag[2:].replace("-", "_"), keys)
    return near.replace("'", "'--", 1) if near else "--help-options lists the options of this dataset"
