"""``rlcore serve``: offer a part of a run to other programs or machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from rlcore.cli.layering import gather, layer_options
from rlcore.cli.output import examples
from rlcore.cli.plugin_commands import plugin_command, plugin_commands
from rlcore.cli.serving import address_options, given_token, serve_until_stopped
from rlcore.config.layers import Layer, override_layers
from rlcore.config.resolve import resolve, resolve_rewards
from rlcore.config.schema import Table
from rlcore.console.wording import counted
from rlcore.episodes.rewards import select_rewards
from rlcore.episodes.served_rewards import LONGEST_S, RewardOffer
from rlcore.errors import NotInstalledError, UserError
from rlcore.plugins.loading import pip_line
from rlcore.plugins.registry import Registry
from rlcore.redaction import redacted
from rlcore.session.exits import exits_reported
from rlcore.specs import EnvironmentSpec, RewardSpec
from rlcore.transport.hosting import HostedEnvironments, interpreters
from rlcore.transport.network import TOKEN
from rlcore.transport.served_environments import ServedEnvironments


class ServeGroup(click.Group):
    """The commands of this module, and those that plugins add under names such as ``serve policy``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        names = (name.partition(" ")[2] for name, _ in plugin_commands() if name.startswith("serve "))
        return [*super().list_commands(ctx), *names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command; None if it does not exist."""
        if (command := super().get_command(ctx, cmd_name) or plugin_command(f"serve {cmd_name}")) is not None:
            return command
        if cmd_name in OTHERS:
            needed = OTHERS[cmd_name]
            raise NotInstalledError(f"rlcore serve {cmd_name} needs {needed}", fix=pip_line([needed]))
        return None


OTHERS = {"policy": "rlcore-harness", "sandbox": "rlcore-sandbox", "openenv": "rl-plugin-openenv"}
"""Commands of other distributions."""


@click.group(cls=ServeGroup)
def serve() -> None:
    """Offer a part of a run to other programs or machines."""


@serve.command(
    short_help="Offer an environment to runs on other machines.",
    epilog=examples(
        f"{TOKEN}=… rlcore serve environment -p gymnasium",
        "rlcore serve environment -p gymnasium --port 7071 --most 16",
        "rlcore serve environment -p gymnasium environment.python=/opt/simulator/bin/python",
        'rlcore run -p gymnasium "environment.servers=[127.0.0.1:7070]"',
    ),
)
@layer_options
@address_options(port=7070, most=16, counted="Environments")
@exits_reported()
def environment(
    plugin: str | None,
    recipe: str | None,
    files: tuple[str, ...],
    overrides: tuple[str, ...],
    host: str,
    port: int,
    most: int,
) -> int:
    """Offer the environment of a recipe, until Ctrl-C.

    Each episode gets a process of its own, in this Python or in that of environment.python. A run gives the options of
    the environment. Both sides need the same token in the variable RLCORE_SERVER_TOKEN. Without one, the command
    creates it and prints it.

    Between machines, listen on 127.0.0.1 and connect through an SSH tunnel, because the connection is not encrypted:
    ssh -N -L 7070:127.0.0.1:7070 SIMULATORS.
    """
    registry = Registry()
    layered = gather(registry, plugin=plugin, recipe=recipe, files=files, overrides=overrides)
    resolved = resolve(layered.layers, registry, recipe=layered.recipe, purpose="evaluation")
    if len(resolved.environments) != 1:
        found = counted(len(resolved.environments), "environment")
        raise UserError("a server offers one environment", found=found, fix="start a server for each of them")
    (offered,) = resolved.environments
    spec = registry.spec("environment", offered.id)
    assert isinstance(spec, EnvironmentSpec)
    if spec.runs_code:
        found = f"{offered.id!r} runs code of the model in the sandbox of the run"
        raise UserError("this environment cannot be served", found=found, fix="offer its sandbox: rlcore serve sandbox")
    model = registry.config_model("environment", offered.id)

    def validated(values: Any) -> Mapping[str, Any] | None:
        if model is None or values is None:
            return None
        try:
            return dict(model.model_validate(values).model_dump(mode="json"))
        except ValueError as error:
            raise UserError(f"the options of {offered.id!r} are not those of the server", found=str(error)) from None

    token, timeout_s = given_token(), resolved.config.rollout.environment_timeout_s
    start = interpreters(spec, offered.python, offered.variables)
    hosted = HostedEnvironments(start, spec=spec, options=offered.options, timeout_s=timeout_s)
    hosted.examine()
    options = [f"-p {plugin}"] * (plugin is not None) + [f"-r {recipe}"] * (recipe is not None)
    options += [f"-c {file}" for file in files]
    serve_until_stopped(
        ServedEnvironments(hosted, validated),
        named=registry.named("environment", offered.id),
        token=token,
        host=host,
        port=port,
        most=most,
        timeout_s=timeout_s,
        use=lambda address: f'rlcore run {" ".join(options)} "environment.servers=[{address}]"',
    )
    return 0


@serve.command(
    short_help="Offer a reward to runs on other machines.",
    epilog=examples(
        f"{TOKEN}=… rlcore serve reward llm-judge base_url=http://localhost:8000/v1 model=judge",
        "rlcore serve reward my_rewards.py:close --port 7072 --most 4",
        'rlcore run -p gsm8k-tools "reward.0.servers=[127.0.0.1:7071]"',
    ),
)
@click.argument("reward", metavar="REWARD")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@address_options(port=7071, most=64, counted="Calls")
@exits_reported()
def reward(reward: str, overrides: tuple[str, ...], host: str, port: int, most: int) -> int:
    """Offer a reward, an id of rlcore plugins list or file.py:NAME, until Ctrl-C.

    It is created once with these options, in this process and on its GPU, and scores for all runs. Both sides need the
    same token in the variable RLCORE_SERVER_TOKEN. Without one, the command creates it and prints it.

    Between machines, listen on 127.0.0.1 and connect through an SSH tunnel, because the connection is not encrypted:
    ssh -N -L 7071:127.0.0.1:7071 JUDGES.
    """
    registry = Registry()
    table = Layer(tree={"reward": [{"id": reward}]}, origins={})
    layers = [table, *override_layers([f"reward.0.{word}" for word in overrides])]
    ((tables, options),) = resolve_rewards(layers, registry, Table).environments.values()
    (selected,) = select_rewards(registry, tables, options, timeout_s=LONGEST_S)
    spec = registry.spec("reward", reward)
    if selected.takes_context or (isinstance(spec, RewardSpec) and spec.runs_code):
        found = f"{reward!r} needs the context of the episode, such as its files or its sandbox"
        raise UserError("this reward cannot be served", found=found, fix="compute it on the machine of the run")
    given = {} if options[0] is None else redacted(options[0].model_dump(mode="json", exclude_unset=True))
    shown = ", ".join(f"{key}={value!r}" for key, value in given.items()) or "its defaults"
    serve_until_stopped(
        RewardOffer(selected, most=most, options=shown),
        named=registry.named("reward", reward),
        token=given_token(),
        host=host,
        port=port,
        most=most,
        timeout_s=LONGEST_S,
        use=lambda address: f'rlcore run … reward.0.id={reward} "reward.0.servers=[{address}]"',
    )
    return 0


__all__ = ["serve"]
