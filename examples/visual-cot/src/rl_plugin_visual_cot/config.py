"""Configuration: ``[environment]``, ``[data]``, the rewards and the keys of ``rlcore data prepare visual-cot``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from rlcore import Table

from rl_plugin_visual_cot.prompts import INSTRUCTION


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Files = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
ACCURACY = 0.7
"""Default weight of a correct answer, which is more than that of everything else."""
Kind = Literal["color", "shape", "corner", "count", "exists"]


class EnvironmentConfig(Table):
    """``[environment]``: an episode is one question and one answer."""

    id: str = "visual-cot"
    """Id of the environment."""


class SceneConfig(Table):
    """Keys of generated pictures."""

    kinds: Annotated[list[Kind], Field(min_length=1)] = ["color", "shape", "corner", "count", "exists"]
    """Kinds of questions, all equally frequent."""
    objects: Annotated[int, Field(ge=1, le=4)] = 3
    """Maximum number of objects in a picture. Each number of objects is equally likely."""
    others: Annotated[int, Field(ge=0, le=3)] | None = None
    """Maximum number of objects besides the one that a question is about, except for questions about the number of
    objects; None is one less than ``objects``."""
    drawn_seed: int = 0
    """Seed of the pictures and questions."""


class DataConfig(SceneConfig):
    """``[data]``: the questions and their pictures."""

    id: str = "visual-cot"
    """Id of the dataset."""
    train: Files = ["generated"]
    """``generated``, or files of rows (.jsonl, .json)."""
    evaluation: Files = ["generated"]
    """Held-out questions: ``generated``, or files of rows."""
    images: str | None = None
    """Folder of the pictures of the files, named ``{imageId}.jpg``."""
    evaluation_images: str | None = None
    """Folder of the pictures of the held-out questions; None uses ``images``."""
    system_prompt: str = INSTRUCTION
    """System prompt; an empty text omits it."""
    on_error: Literal["raise", "skip"] = "raise"
    """Whether an invalid row, a missing picture or a repeated question stops the run, or is skipped and counted."""
    limit: Count | None = None
    """Use only the first questions of each split; None uses all."""
    questions: Count = 4096
    """Number of generated training questions."""
    held_out: Count = 200
    """Number of generated held-out questions."""
    descriptions: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Fraction of the generated demonstrations that describe the picture instead of answering a question."""
    guesses: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Fraction of the answers in generated demonstrations that look at the right place but are guessed."""
    blank: bool = False
    """Replace every picture by an empty one of the same size, to measure the accuracy without it."""


class PrepareConfig(SceneConfig):
    """Keys of ``rlcore data prepare visual-cot``."""

    out: str
    """Folder to write: ``train_data.jsonl``, ``dev_data.jsonl``, ``test.jsonl``, ``images/`` and ``test_images/``."""
    questions: Count = 4096
    """Number of training questions."""
    held_out: Count = 200
    """Number of questions in each of the two held-out files."""


class RewardConfig(Table):
    """``[[reward]]`` of ``visual-cot``: the weights of its components, which must sum to 1."""

    id: str = "visual-cot"
    """Id of the reward."""
    accuracy: Annotated[float, Field(ge=0, le=1)] = ACCURACY
    """Weight of a correct answer."""
    format: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Weight of the exact format."""
    consistency: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Weight of a chain of thought that concludes with the given answer."""
