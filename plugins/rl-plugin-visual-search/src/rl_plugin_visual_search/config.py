"""Configuration: ``[environment]``, ``[data]``, the rewards and the keys of ``rlcore data prepare visual-search``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from rlcore import Table


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Files = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]


class EnvironmentConfig(Table):
    """``[environment]``: an episode is one question, several turns of looking closer, and one answer."""

    id: str = "visual-search"
    """Id of the environment."""
    tools: Literal["code", "zoom", "none"] = "code"
    """``code``: Python code in ``<code>``, run in the sandbox. ``zoom``: the tool ``image_zoom_in_tool``. ``none``:
    only an answer, to measure what the tools contribute."""
    max_turns: Annotated[int, Field(ge=1, le=100)] = 5
    """Maximum number of the model's turns. Code in the last turn is not executed."""
    max_images: Annotated[int, Field(ge=1, le=1000)] = 32
    """Maximum number of pictures in an episode, with those of the question. Further pictures are left out, and the
    observation says so."""
    on_error: Literal["continue", "stop"] = "continue"
    """Whether an episode goes on after a turn without usable code or answer, or with code that failed."""


class AccuracyConfig(Table):
    """``[[reward]]`` of ``visual-search``."""

    id: str = "visual-search"
    """Id of the reward."""


class ToolBonusConfig(Table):
    """``[[reward]]`` of ``visual-search-tools``. Its ``weight`` is the bonus of one call, 0.1 in the paper."""

    id: str = "visual-search-tools"
    """Id of the reward."""
    accuracy: str = "visual-search"
    """The reward of the run that says whether the answer is right, such as ``llm-judge``."""
    threshold: Annotated[float, Field(gt=0, le=1)] = 1.0
    """An answer is right from this value of ``accuracy`` on."""
    most: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Maximum number of calls that count; None counts all."""
    failed: bool = False
    """Whether calls that failed count as well."""


class DataConfig(Table):
    """``[data]``: the questions and their pictures."""

    id: str = "visual-search"
    """Id of the dataset."""
    train: Files = ["generated"]
    """``generated``, or files of questions (.parquet, .json, .jsonl) and folders of them."""
    evaluation: Files = ["generated"]
    """Held-out questions: ``generated``, or files."""


class PrepareConfig(Table):
    """Keys of ``rlcore data prepare visual-search``."""

    out: str
    """Parquet file to write."""
