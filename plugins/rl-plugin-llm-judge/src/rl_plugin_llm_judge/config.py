"""Options of the judge."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from rlcore.config.schema import LARGEST, Count
from rlcore.endpoints.options import LONGEST_WAIT_S, BaseUrl, EndpointTable

Extract = Literal["auto", "answer-box", "answer-tag", "boxed", "response"]


class JudgeConfig(EndpointTable):
    """Keys of ``llm-judge``: the endpoints, what is asked, and what is judged."""

    model: Annotated[str, Field(min_length=1)] = "judge"
    """Name of the model at the endpoints."""
    base_url: Annotated[list[BaseUrl], Field(min_length=1, max_length=64)] = ["http://localhost:8000/v1"]
    """URLs of equal servers, which share the questions. The others continue when one fails."""
    concurrency: Count = 64
    """Maximum number of requests at a time."""
    timeout_s: Annotated[float, Field(gt=0, le=LONGEST_WAIT_S)] = 60.0
    """Seconds after which a single request has failed."""
    deadline_s: Annotated[float, Field(gt=0, le=LONGEST_WAIT_S)] = 300.0
    """Seconds after which a judgement has failed, with its wait for others, its retries and its repeated questions."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0
    """Sampling temperature; None leaves it to the endpoint, for models that accept no other."""
    max_tokens: Annotated[int, Field(ge=1, le=LARGEST)] = 2048
    """Maximum number of tokens of a reply, with the reasoning before the verdict."""
    attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """Number of replies after which a judgement without a clear verdict has failed."""
    cache_size: Annotated[int, Field(ge=0, le=LARGEST)] = 100_000
    """Number of verdicts to remember. An equal question is not asked again."""

    template: str = "binary"
    """The question: ``binary``, ``true-false`` or ``graded``, or a TOML file with your own."""
    examples: str = "general"
    """Solved examples in the question: ``general``, ``visual-search``, ``math``, ``chart``, ``video`` or ``none``, or a
    TOML file with your own."""
    examples_field: str = ""
    """Field of the task that selects its examples, such as ``data_source``; empty for the same in all tasks."""
    examples_by: dict[str, str] = {}
    """Examples by the value of ``examples_field``. Other values use ``examples``."""

    field: str = "answer"
    """Field of the task with the expected answer: a text, a number, or a list of accepted ones."""
    aliases_field: str = ""
    """Field of the task with a list of further accepted answers, which may be empty; empty for none."""
    question_field: str = ""
    """Field of the task with the question; empty for the text of its last user message."""
    extract: Extract = "auto"
    r"""What is judged of the last turn: the last ``<answer>…</answer>`` (``answer-tag``), the last ``\boxed{…}``
    (``boxed``), or all (``response``), without its reasoning. ``auto`` takes the first of these that the policy has
    written. ``answer-box`` takes only a ``\boxed{…}`` inside of ``<answer>…</answer>`` and outside of code, as the
    environment ``visual-search`` does."""
    max_answer_characters: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """A longer answer scores 0 and is not judged."""
    compare_first: bool = True
    """An answer that equals the expected one as a text scores 1 and is not judged."""

    @model_validator(mode="after")
    def _examples_have_a_field(self) -> JudgeConfig:
        if self.examples_by and not self.examples_field:
            raise ValueError('examples_by needs examples_field, such as "data_source"; found no field')
        if self.examples_field and not self.examples_by:
            raise ValueError("examples_field needs examples_by, the examples of its values; found none")
        return self
