"""The files of datasets whose rows contain messages: their configuration, and their valid rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from rlcore.config.schema import LARGEST, Files, Table, Texts
from rlcore.console.wording import counted
from rlcore.data.files import data_files, file_rows, row_place
from rlcore.data.row_images import ImageReader
from rlcore.errors import DataError

Row = TypeVar("Row")


class ChatFilesConfig(Table):
    """The keys of ``[data]`` that these datasets share."""

    train: Files
    """Files of rows (.jsonl, .json or .parquet), a folder of them, or a name in the hub's cache."""
    evaluation: Texts = []
    """Files of held-out rows, used to select the best checkpoint."""
    images: str | None = None
    """Folder that the paths of images are relative to and must not leave; None is the folder of the file."""
    on_error: Literal["raise", "skip"] = "raise"
    """Whether an invalid row stops the run, or is skipped and counted."""
    limit: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Number of rows to use from each split, from the start; None uses all."""


class ChatFiles:
    """The files of a dataset in their order."""

    def __init__(self, config: ChatFilesConfig) -> None:
        self._config = config
        self._readers: dict[Path, ImageReader] = {}

    def rows(self, split: str, parsed: Callable[[str, Any, ImageReader], Row], what: str) -> tuple[list[Row], int]:
        """Read the valid rows of ``train`` or ``evaluation``, and count the invalid ones that were skipped.

        Args:
            split: the split
            parsed: returns a row from its id ``FILE:LINE``, its value and the reader of its images, or raises
                `DataError`
            what: a row, for messages

        Raises:
            DataError: a file cannot be read, a row is invalid (unless rows are skipped), or no row is valid.
        """
        if split not in ("train", "evaluation"):
            raise DataError("the split must be train or evaluation", found=split)
        config, found, skipped = self._config, list[Row](), 0
        names = config.train if split == "train" else config.evaluation
        files = [file for name in names for file in data_files(name, split)]
        for file, (line, row) in ((path, one) for path in files for one in file_rows(path)):
            try:
                if isinstance(row, DataError):
                    raise row
                found.append(parsed(f"{file.stem}:{line}", row, self._reader(file)))
            except DataError as error:
                if config.on_error == "raise":
                    fix = error.fix or "correct the row, or skip invalid rows with data.on_error=skip"
                    raise DataError(error.message, found=error.found, where=row_place(file, line), fix=fix) from None
                skipped += 1
            if len(found) == config.limit:
                break
        if names and not found:
            raise DataError(
                f"data.{split} has no valid {what}",
                found=counted(skipped, "invalid row") if skipped else "no rows",
                where=", ".join(names),
                fix="data.on_error=raise shows the first problem" if skipped else "add rows to the file",
            )
        return found, skipped

    def _reader(self, file: Path) -> ImageReader:
        """The reader of the images of a file, which files of one folder share."""
        named = self._config.images
        folder = Path(named).expanduser() if named is not None else file.parent
        return self._readers.setdefault(folder, ImageReader(folder))
