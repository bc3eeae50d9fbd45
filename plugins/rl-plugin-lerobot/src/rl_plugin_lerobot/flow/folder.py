"""What folders of flow policies have in common, in LeRobot and in transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rlcore.errors import UserError
from rlcore.json_files import read_json
from rlcore_control.models.folder import CONFIG, WEIGHTS, unreadable
from rlcore_control.models.spaces import Spaces
from torch import Tensor

from rl_plugin_lerobot.features import (
    ACTION,
    ENVIRONMENT_STATE,
    STATE,
    Features,
    Scale,
    check_steps,
    has_statistics,
    scales,
    wrong_values,
)

SETTINGS = "rlcore_policy.json"
"""File that rlcore adds to a folder; see `Settings`."""
PROMPT = 48
"""Tokens of a prompt where the folder does not say it, as in openpi."""
MOST_LAYERS = 1000
"""Largest number of layers of a network."""
EMPTY_CAMERA = "empty_camera_"
"""Start of the names of LeRobot's cameras without a picture, which are masked."""

Size = Annotated[int, Field(ge=1, le=2**16)]


class ScaleSettings(BaseModel):
    """``(value - offset) / spread``."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    offset: list[float]
    spread: list[Annotated[float, Field(gt=0)]]


class Settings(BaseModel):
    """The file `SETTINGS`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    state: Annotated[int, Field(ge=0, le=2**16)] | None = None
    """Number of values of the state. Only for folders of transformers, as the next keys."""
    cameras: Annotated[list[str], Field(min_length=1, max_length=64)] | None = None
    """Names of the environment's cameras, in the order of the policy."""
    actions: Size | None = None
    """Number of values of an action."""
    n_action_steps: Size | None = None
    """Number of actions that are executed of a predicted chunk; None executes all."""
    normalisation: dict[Literal["state", "action"], ScaleSettings] | None = None
    """How states and actions are normalised; None for not at all."""
    noise_level: Annotated[float, Field(gt=0, le=10)] = 0.5
    """Scale of the noise that is added when actions are sampled."""


class FlowSizes(BaseModel):
    """The keys of ``config.json`` that all flow policies have."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    chunk_size: Size = 50
    n_action_steps: Size | None = None
    max_state_dim: Size = 32
    max_action_dim: Size = 32
    time_sampling_beta_alpha: Annotated[float, Field(gt=0)] = 1.5
    time_sampling_beta_beta: Annotated[float, Field(ge=1, le=1)] = 1.0
    time_sampling_scale: Annotated[float, Field(ge=0, le=1)] = 0.999
    time_sampling_offset: Annotated[float, Field(ge=0, le=1)] = 0.001
    min_period: Annotated[float, Field(gt=0)] = 4e-3
    max_period: Annotated[float, Field(gt=0)] = 4.0
    tokenizer_max_length: Annotated[int, Field(ge=2, le=1024)] = PROMPT
    n_obs_steps: Literal[1] = 1


SizesOfFamily = TypeVar("SizesOfFamily", bound=FlowSizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFolder:
    """What a folder says about a policy."""

    folder: Path
    config: Any
    """The configuration of the networks that transformers computes."""
    sizes: FlowSizes
    steps: int
    """Number of steps of the flow."""
    spaces: Spaces
    chunk: int
    """Number of actions of a predicted chunk that are executed."""
    settings: Settings
    scales: Mapping[str, Scale]
    """Normalisation of ``state``, ``action`` and the picture of each camera, by its name after ``images/``."""
    keeps_statistics: bool
    """Whether states and actions are normalised as the folder says."""
    needs_statistics: bool = False
    """Whether the policy cannot act before it has statistics of states and actions."""


def read_sizes(kind: type[SizesOfFamily], described: Mapping[str, Any], folder: Path) -> SizesOfFamily:
    """Read the keys of ``config.json``.

    Raises:
        UserError: a value is wrong.
    """
    try:
        return kind.model_validate(described)
    except ValidationError as error:
        raise unreadable(wrong_values(error), folder / CONFIG) from error


def read_settings(folder: Path) -> Settings:
    """Read the file `SETTINGS`, if there is one.

    Raises:
        UserError: it is damaged.
    """
    path = folder / SETTINGS
    if not path.is_file():
        return Settings()
    try:
        return Settings.model_validate(read_json(path))
    except (OSError, ValueError) as error:
        raise unreadable(f"{type(error).__name__}: {error}".replace("\n", " "), path) from error


def check_family(weights: Mapping[str, Tensor], part: str, folder: Path) -> None:
    """Raise `UserError` at once if no weight has a name with a part that all folders of a family have."""
    if not any(part in name for name in weights):
        raise unreadable(f"weights of another family of policies: no name has {part}", folder / WEIGHTS)


def check_padding(state: int, actions: int, sizes: FlowSizes, path: Path) -> None:
    """Raise `UserError` if a state or an action has more values than the network."""
    if state > sizes.max_state_dim or actions > sizes.max_action_dim:
        raise unreadable(
            f"{state} values of the state and {actions} of an action, of at most {sizes.max_state_dim} and "
            f"{sizes.max_action_dim}",
            path,
        )


def read_features(
    family: str, described: Mapping[str, Any], sizes: FlowSizes, folder: Path, problems: Mapping[str, bool], *, fix: str
) -> Features:
    """Read the features of a folder of LeRobot, and refuse what rlcore does not compute.

    Args:
        family: the name of the policy in messages
        described: ``config.json``
        sizes: its keys
        folder: the folder
        problems: whether a key, or what is named, is something that rlcore does not compute
        fix: what to do about it

    Raises:
        UserError: one of the problems, no camera, or a state of the environment.
    """
    features = Features.of(described, folder)
    problems = {
        **problems,
        ENVIRONMENT_STATE: ENVIRONMENT_STATE in features.shapes,
        "a policy without a camera": not any(not name.startswith(EMPTY_CAMERA) for name in features.pictures),
    }
    wrong = next((name for name, value in problems.items() if value), None)
    if wrong is not None:
        raise UserError(
            f"rlcore cannot compute this {family} policy because of {wrong}",
            found=str(getattr(sizes, wrong, "given")),
            where=str(folder / CONFIG),
            fix=fix,
        )
    check_padding(features.shapes.get(STATE, (0,))[0], features.shapes[ACTION][0], sizes, folder / CONFIG)
    return features


def lerobot_folder(
    described: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    folder: Path,
    *,
    features: Features,
    sizes: FlowSizes,
    steps: int,
    config: Any,
) -> FlowFolder:
    """Read cameras, statistics and settings of a folder of LeRobot.

    Raises:
        UserError: a file is damaged, or the settings contain what the folder says itself.
    """
    settings = read_settings(folder)
    given = settings.model_dump(exclude_none=True, exclude={"noise_level"})
    if given:
        raise UserError(
            "the sizes and statistics of a policy of LeRobot are those of its own files",
            found=", ".join(given),
            where=str(folder / SETTINGS),
            fix=f"leave only noise_level in {SETTINGS}",
        )
    check_steps(sizes.n_action_steps or 1, sizes.chunk_size, folder / CONFIG)
    known = has_statistics(described, features, folder, weights)
    found, spaces = scales(described, features, folder, weights, known=known), features.spaces()
    cameras = {name: size for name, size in spaces.cameras.items() if not name.startswith(EMPTY_CAMERA)}
    own = {name: found[feature] for name, feature in features.pictures.items() if name in cameras}
    own["action"] = found[ACTION]
    if STATE in found:
        own["state"] = found[STATE]
    return FlowFolder(
        folder=folder,
        config=config,
        sizes=sizes,
        steps=steps,
        spaces=Spaces(state=spaces.state, cameras=cameras, low_A=spaces.low_A, high_A=spaces.high_A),
        chunk=sizes.n_action_steps or sizes.chunk_size,
        settings=settings,
        scales=own,
        keeps_statistics=known,
        needs_statistics=not known,
    )
