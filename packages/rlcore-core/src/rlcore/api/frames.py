"""Rows as data frames of pandas and polars, if they are installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.errors import NotInstalledError

if TYPE_CHECKING:
    import pandas
    import polars

Row = Mapping[str, Any]


def pandas_frame(rows: Sequence[Row], *, index: str | None = None) -> pandas.DataFrame:
    """A frame with one row for each mapping; missing values are NaN.

    Raises:
        NotInstalledError: pandas is not installed.
    """
    frame: pandas.DataFrame = _library("pandas").DataFrame.from_records(list(rows))
    return frame.set_index(index) if index is not None and index in frame else frame


def polars_frame(rows: Sequence[Row]) -> polars.DataFrame:
    """A frame with one row for each mapping; missing values are null.

    Raises:
        NotInstalledError: polars is not installed.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    whole = [{name: row.get(name) for name in names} for row in rows]
    frame: polars.DataFrame = _library("polars").DataFrame(whole, infer_schema_length=None)
    return frame


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        message = f"a data frame needs {name}, which is not installed"
        raise NotInstalledError(message, fix=f"pip install {name}") from None


__all__ = ["Row", "pandas_frame", "polars_frame"]
