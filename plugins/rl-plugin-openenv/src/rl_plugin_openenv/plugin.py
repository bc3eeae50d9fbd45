"""The hook implementations of this plugin."""

from __future__ import annotations

from rlcore.specs import CommandSpec, DatasetSpec, EnvironmentSpec, RewardSpec

_PACKAGE = "rl_plugin_openenv"

rlcore_specs = [
    EnvironmentSpec(
        id="openenv",
        target=f"{_PACKAGE}.environment:OpenEnvChat",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="The environment of an OpenEnv server, by its URL.",
        check=f"{_PACKAGE}.environment:check",
    ),
    EnvironmentSpec(
        id="openenv-images",
        target=f"{_PACKAGE}.environment:OpenEnvPictures",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="The environment of an OpenEnv server, with the images of its observations.",
        modalities=frozenset({"text", "image"}),
        check=f"{_PACKAGE}.environment:check",
    ),
    EnvironmentSpec(
        id="nemo-gym",
        target=f"{_PACKAGE}.nemo_gym:ResourcesServer",
        config=f"{_PACKAGE}.config:ServerTable",
        summary="A resources server of NeMo Gym, by its URL: its tools, and its verification as the reward.",
        check=f"{_PACKAGE}.nemo_gym:check",
    ),
    *(
        DatasetSpec(
            id=id,
            target=f"{_PACKAGE}.dataset:SeededTasks",
            config=f"{_PACKAGE}.config:DataConfig",
            summary="Seeds for the resets of an OpenEnv server, and demonstrations with random answers.",
        )
        for id in ("openenv", "openenv-images")
    ),
    DatasetSpec(
        id="nemo-gym",
        target=f"{_PACKAGE}.nemo_gym_rows:Rows",
        config=f"{_PACKAGE}.config:RowsConfig",
        summary="Rows in the format of NeMo Gym.",
    ),
    RewardSpec(
        id="openenv-return",
        target=f"{_PACKAGE}.reward:episode_return",
        summary="The sum of the rewards of a server of OpenEnv or NeMo Gym.",
        minimum=-float("inf"),
        maximum=float("inf"),
        rewards_silence=True,
    ),
    CommandSpec(
        id="serve openenv", target=f"{_PACKAGE}.cli:serve_openenv", summary="Offer an environment as an OpenEnv server."
    ),
]
