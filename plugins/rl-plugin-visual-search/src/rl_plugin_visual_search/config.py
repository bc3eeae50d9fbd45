"""Configuration: ``[environment]``, ``[data]``, the rewards and the keys of ``rlcore data prepare visual-search``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from rlcore import Table
from rlcore.config.schema import Files

from rl_plugin_visual_search.drawn.config import DrawnConfig
from rl_plugin_visual_search.prompts import Coordinates, Style, Tools

Count = Annotated[int, Field(ge=1, le=10_000_000)]


class EnvironmentConfig(Table):
    """``[environment]``: an episode is one question, several turns of looking closer, and one answer."""

    id: str = "visual-search"
    """Id of the environment."""
    max_turns: Annotated[int, Field(ge=1, le=100)] = 5
    """Maximum number of the model's turns. Code in the last turn is not executed."""
    max_images: Annotated[int, Field(ge=1, le=1000)] = 32
    """Maximum number of pictures in an episode, with those of the question. Further pictures are left out, and the
    observation says so."""
    on_error: Literal["continue", "stop"] = "continue"
    """Whether an episode goes on after a turn without usable code or answer, or with code that failed."""


class AccuracyConfig(Table):
    """``[[reward]]`` of ``visual-search``: 1 if the boxed answer is right, compared by string."""

    id: str = "visual-search"
    """Id of the reward."""
    numbers: Literal["equal", "relative"] = "equal"
    """Whether a number must be equal, or have a mean relative accuracy of at least 0.5."""
    max_answer_characters: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """A longer answer scores 0, as with ``llm-judge``."""


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


class DataConfig(DrawnConfig):
    """``[data]``: the questions and their pictures, and how they are asked."""

    id: str = "visual-search"
    """Id of the dataset."""
    train: Files = ["generated"]
    """``generated``, or files of questions or of conversations (.parquet, .json, .jsonl), or folders of them."""
    evaluation: Files = ["generated"]
    """Held-out questions: ``generated``, or files."""
    images: str | None = None
    """Folder that paths of pictures are relative to and must not leave; None is the folder of the file."""
    tools: Tools = "code"
    """What the model may use: ``code``, Python code that runs in the sandbox; ``zoom``, the tool
    ``image_zoom_in_tool``; ``none``, nothing, to measure what the tools contribute. The environment follows."""
    style: Style = "guided"
    """The prompt: ``guided`` explains tools and answers; ``agent`` asks for plans as well; ``plain`` has only the
    pictures and the question; ``row`` is the prompt of the file, where it has one."""
    show_pictures: bool = True
    """Whether the prompt shows the pictures. If not, the model sees only what its code shows, or where it zooms in."""
    coordinates: Coordinates = "pixels"
    """The space of the zoom tool's regions: ``pixels`` of the picture as it is in the file, whose size the prompt
    states, or ``thousandths`` of its width and height."""
    option_seed: int | None = 0
    """Seed of the order of options in multiple-choice questions, also of options in the text of a question. None keeps
    the order of the file, in which the right one is often first. With ``style = "row"``, prompts of files are kept as
    they are. In any order, the right answer is the letter and the text of an option."""
    on_error: Literal["raise", "skip"] = "raise"
    """Whether an unusable row stops the run, or is skipped and counted."""
    limit: Count | None = None
    """Use only the first rows of each split; None uses all. The pictures of a split are kept in memory, encoded."""

    @property
    def runs_code(self) -> bool:
        """Whether the model may write code, so that the run needs a sandbox."""
        return self.tools == "code"

    @model_validator(mode="after")
    def _prompts_of_files_explain_code(self) -> DataConfig:
        if self.style == "row" and self.tools != "code":
            raise ValueError(
                f'style = "row" needs tools = "code", because files explain their own tools; found {self.tools!r}'
            )
        return self

    @model_validator(mode="after")
    def _pictures_can_be_seen(self) -> DataConfig:
        if self.tools == "none" and not self.show_pictures:
            raise ValueError('show_pictures = false needs a tool that shows the pictures; found tools = "none"')
        return self


class PrepareConfig(Table):
    """Keys of ``rlcore data prepare visual-search``."""

    source: Files
    """Files of questions (.parquet, .json, .jsonl), or folders of them."""
    images: str | None = None
    """Folder that paths of pictures are relative to and must not leave; None is the folder of the file."""
    out: str
    """Parquet file to write, which contains the pictures."""
    subset: str | None = None
    """Parquet file for held-out questions, which are then not in ``out``. No picture is in both."""
    subset_size: Count = 300
    """Number of held-out questions, which all questions about the chosen pictures can exceed."""
    seed: int = 0
    """Seed of the choice of held-out pictures."""
    strict: bool = False
    """Write nothing and fail if a row cannot be used. Otherwise such rows are counted and left out."""
    overwrite: bool = False
    """Replace existing files."""

    @model_validator(mode="after")
    def _held_out_questions_have_a_file(self) -> PrepareConfig:
        if self.subset is None and "subset_size" in self.model_fields_set:
            raise ValueError("subset_size needs subset, the file for the held-out questions; found none")
        return self
