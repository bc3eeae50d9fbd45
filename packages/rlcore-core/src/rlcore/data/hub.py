"""The dataset ``hub``: a data set of the Hugging Face hub, or a folder of its files, with a mapping of columns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlcore.config.schema import Table
from rlcore.data.chat_rows import conversation, images_in, images_of, parsed_content, short
from rlcore.data.files import in_hub_cache
from rlcore.data.forms import task_row
from rlcore.data.row_images import COLUMNS, ImageReader, prompt_content, take_column
from rlcore.errors import DataError, NotInstalledError
from rlcore.plugins.loading import pip_line
from rlcore.redaction import redact, remember
from rlcore.types import Demonstration, Message, Task

TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Environment variables with the user's token, which the hub's library reads and no message shows."""
WITH_IMAGES = (*COLUMNS, "prompt", "completion", "messages", "conversations")
"""Fields whose values may contain images."""
MEDIA = ("Image", "Audio", "Video", "Pdf")
"""Types of columns of ``datasets`` whose values are files."""
ROLES = ("system", "user")
"""Roles of the messages of a prompt."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubDataConfig(Table):
    """``[data]`` of ``hub``."""

    id: str = "hub"
    """Id of the dataset."""
    path: str
    """Name on the hub, such as ``openai/gsm8k``, or a folder of .parquet, .jsonl or .csv files."""
    subset: str | None = None
    """Configuration of the data set, such as ``main``; None for a data set with only one."""
    revision: str | None = None
    """Commit, tag or branch; None is the newest. Give the full commit to reproduce a run."""
    train: str = "train"
    """Split with the training rows; it can be a part, such as ``train[200:]``."""
    evaluation: str = "test"
    """Split with the held-out rows, such as ``validation`` or ``train[:200]``."""
    columns: dict[str, str] = {}
    """Columns by the field that they become, such as ``prompt = "question"``. The field ``prompt`` is a text or a list
    of messages; ``messages`` is a whole conversation; ``images`` has the images of a row, or its only one. Other
    columns become fields with their own names."""
    images: str | None = None
    """Folder that the paths of images are relative to and must not leave; None is the folder of the data set."""


class HubData:
    """Rows of a data set. No code of the data set is run; a split is loaded on first use, from the cache if offline."""

    def __init__(self, config: HubDataConfig) -> None:
        self._config = config
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._images: ImageReader | None = None
        self._mappings: dict[str, dict[str, None]] = {}

    def tasks(self, split: str) -> Sequence[Task]:
        """A task for each row, with ids ``SPLIT:ROW``.

        Raises:
            NotInstalledError: the library ``datasets`` is missing.
            DataError: the data set cannot be loaded, or a row has no prompt.
        """
        return [self._task(split, number, row) for number, row in enumerate(self._loaded(split))]

    def mappings(self, split: str) -> Sequence[str]:
        """How the rows of another system were read as tasks."""
        return list(filter(None, self._mappings.get(split, ())))

    def conversations(self, split: str) -> Sequence[Demonstration]:
        """A conversation for each row, for supervised training. Raises like `tasks`."""
        found = []
        for number, row in enumerate(self._loaded(split)):
            try:
                found.append(conversation(row, self._reader())[0])
            except DataError as error:
                fix = error.fix or "map the column of the conversations: data.columns.messages=COLUMN"
                raise DataError(error.message, found=error.found, where=self._place(split, number), fix=fix) from None
        return found

    def _task(self, split: str, number: int, row: Mapping[str, Any]) -> Task:
        row, mapping = task_row(row)
        self._mappings.setdefault(split, {})[mapping] = None
        name = "prompt"
        if name not in row:
            raise DataError(
                "a row needs the field 'prompt'",
                found=f"the columns {', '.join(row)}",
                where=self._place(split, number),
                fix="map the column of the prompts: data.columns.prompt=COLUMN",
            )
        fields = {key: value for key, value in row.items() if key != name}
        try:
            messages = self._prompt(row[name], row, take_column(fields))
        except DataError as error:
            raise DataError(error.message, found=error.found, where=self._place(split, number), fix=error.fix) from None
        if not messages:
            raise DataError(
                f"the field {name!r} must be a text, or a list of messages with role and content",
                found=short(row[name]),
                where=self._place(split, number),
                fix=f"map another column: data.columns.{name}=COLUMN",
            )
        images = images_in(messages, self._reader())
        plain = {key: value for key, value in fields.items() if _is_plain(value)}
        return Task(id=f"{split}:{number}", messages=messages, fields=plain, images=images)

    def _prompt(self, value: object, row: Mapping[str, Any], column: list[object] | None) -> tuple[Message, ...]:
        """The messages of a prompt, before the first answer; none if the value is not a prompt."""
        entries = value if isinstance(value, list) else []
        if isinstance(value, str) and value.strip():
            entries = [{"role": "user", "content": prompt_content(value, row)}]
        images = images_of(entries, column, self._reader())
        messages = []
        for one in entries:
            role, content = (one.get("role"), one.get("content")) if isinstance(one, dict) else (None, None)
            if role not in ROLES or not isinstance(content, (str, list)):
                break
            messages.append(Message(role=role, content=parsed_content(content, "content", images)))
        return tuple(messages)

    def _reader(self) -> ImageReader:
        if self._images is None:
            named, path = self._config.images, Path(self._config.path).expanduser()
            folder = Path(named).expanduser() if named is not None else path if path.is_dir() else _cache()
            self._images = ImageReader(folder)
        return self._images

    def _place(self, split: str, number: int) -> str:
        return f"{self._config.path}, data.{split}, row {number}"

    def _loaded(self, split: str) -> list[dict[str, Any]]:
        if split not in ("train", "evaluation"):
            raise DataError("unknown split", found=split, fix="use train or evaluation")
        if split not in self._rows:
            rows = self._load(split)
            named = {column: field for field, column in self._config.columns.items()}
            missing = [column for column in named if column not in rows.column_names]
            if missing:
                raise DataError(
                    f"the data set {self._config.path} has no column {missing[0]!r}",
                    found=f"the columns {', '.join(rows.column_names)}",
                    where=f"data.columns.{named[missing[0]]}",
                    fix="name a column of the data set",
                )
            _keep_encoded(rows)
            self._rows[split] = [_kept({named.get(column, column): row[column] for column in row}) for row in rows]
        return self._rows[split]

    def _load(self, split: str) -> Any:
        config = self._config
        folder = Path(config.path).expanduser()
        if folder.is_file():
            raise DataError(
                "data.path must be the name of a data set, or a folder",
                found="a file",
                where=config.path,
                fix=f"data.path={folder.parent}, or data.train={config.path} with a dataset that reads files",
            )
        try:
            import datasets
        except ImportError:
            fix = pip_line(["rlcore-core[datasets]"])
            raise NotInstalledError("data sets of the hub need the library datasets", fix=fix) from None
        if datasets.config.HF_HUB_OFFLINE and not folder.is_dir():
            folder = in_hub_cache(config.path, config.revision) or folder
        path = str(folder) if folder.is_dir() else config.path
        part = config.train if split == "train" else config.evaluation
        for name in TOKENS:
            remember(os.environ.get(name, ""))
        try:
            with _without_progress(datasets):
                builder = datasets.load_dataset_builder(path, config.subset, revision=config.revision)
                self._check_revision(str(builder.hash), path)
                return datasets.load_dataset(path, config.subset, revision=config.revision, split=part)
        except DataError:
            raise
        except Exception as error:  # the boundary to files and the network: the advice is the same for all failures
            causes = [str(one).splitlines() for one in (error, error.__cause__) if one is not None and str(one)]
            found = redact(": ".join(lines[0] for lines in causes) or type(error).__name__)
            raise DataError(
                f"cannot load the data set {config.path}",
                found=found,
                where=f"data.{split}={part}",
                fix="check data.path, data.subset, data.revision and the split; without a network, the data set must "
                "be in the hub's cache or in that of datasets, or a local folder",
            ) from None

    def _check_revision(self, cached: str, path: str) -> None:
        """Reject another revision, which the cache of ``datasets`` may provide without a network."""
        wanted = self._config.revision
        if wanted is not None and _COMMIT.fullmatch(wanted) and not Path(path).is_dir() and cached != wanted:
            raise DataError(
                f"the cache has another revision of the data set {self._config.path}",
                found=cached,
                where=f"data.revision={wanted}",
                fix="load it once with a network, or set data.revision to the cached one",
            )


def _cache() -> Path:
    """The folder with the downloaded files of all data sets."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def _keep_encoded(rows: Any) -> None:
    """Let images and other media of a data set be read as their files, instead of being decoded."""
    features = rows.info.features
    for name, feature in list(features.items()):
        _without_decoding(feature)
        features[name] = feature  # updates what the data set knows about its columns


def _without_decoding(feature: Any) -> None:
    if type(feature).__name__ in MEDIA:
        feature.decode = False
    inner = feature.values() if isinstance(feature, dict) else feature if isinstance(feature, list) else ()
    for part in (*inner, *filter(None, [getattr(feature, "feature", None)])):
        _without_decoding(part)


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    """The columns with plain data and those that may have images. Other objects of a data set are left out."""
    return {name: value for name, value in row.items() if name in WITH_IMAGES or _is_plain(value)}


def _is_plain(value: object) -> bool:
    """Whether a value is plain data."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float, bool))


@contextmanager
def _without_progress(datasets: Any) -> Iterator[None]:
    shown = datasets.are_progress_bars_disabled() is False
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()
