"""Options that the ``rlcore data label`` of every GUI dataset has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field
from rlcore.config.schema import LARGEST, Files
from rlcore.endpoints.options import EndpointTable


def _lines(name: str) -> str:
    if not name.endswith(".jsonl"):
        raise ValueError("needs a file name with the suffix .jsonl")
    return name


class LabelTable(EndpointTable):
    """The teacher, what it is asked, and where its labels are written. A dataset adds the keys of its source."""

    out: Annotated[str, AfterValidator(_lines)]
    """File of the labels, one JSON object per step. The same command again continues it."""
    limit: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Ask about at most this many steps; None asks about all. Steps that have labels do not count."""
    dry_run: bool = False
    """Print one request and an estimate of requests and images, and send nothing."""
    retry_failed: bool = False
    """Ask again about steps that the teacher could not label. Steps without a response are always asked again."""
    attempts: Annotated[int, Field(ge=1, le=50)] = 4
    """Number of answers after which a step without valid sections has failed."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature; None leaves it to the endpoint."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    """Probability mass that is sampled from; None leaves it to the endpoint."""
    max_tokens: Annotated[int, Field(ge=64, le=LARGEST)] = 4096
    """Maximum number of tokens of an answer."""
    max_side: Annotated[int, Field(ge=28, le=20_000)] = 6000
    """Longest side of an image in pixels. Larger screenshots are made smaller."""
    jpeg_quality: Annotated[int, Field(ge=30, le=100)] = 90
    """Quality of the JPEG images that are sent. A screenshot that is a small enough JPEG is sent unchanged."""


class SourceLabelTable(LabelTable):
    """Keys of ``rlcore data label`` for recorded episodes."""

    FLAGS: ClassVar[Mapping[str, str]] = {"imgs_dir": "images", "output_path": "out"}

    source: Files
    """Files of recorded episodes (.json), the same as for ``rlcore data prepare``."""
    images: str
    """Folder of the screenshots. Their names must not leave it."""
