"""``rlcore serve``: offer a part of a run to other programs or machines."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Any

import click

from rlcore.cli.layering import gather, layer_options
from rlcore.cli.output import examples
from rlcore.cli.plugin_commands import plugin_command, plugin_commands
from rlcore.config.resolve import resolve
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.errors import NotInstalledError, UserError
from rlcore.plugins.loading import pip_line
from rlcore.plugins.registry import Registry
from rlcore.session.exits import exits_reported, stops_handled
from rlcore.specs import EnvironmentSpec
from rlcore.transport.hosting import HostedEnvironments, interpreters
from rlcore.transport.network import TOKEN, in_url, is_loopback, listening_on, server_token
from rlcore.transport.server import EnvironmentServer

GIVEN = 32
"""Bytes of a token that the command creates."""


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


OTHERS = {"policy": "rlcore-harness", "openenv": "rl-plugin-openenv"}
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
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=7070, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option("--most", default=16, show_default=True, type=click.IntRange(1, 4096), help="Environments at a time.")
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
        raise UserError("this environment cannot be served", found=found, fix="use sandbox.id=http for its sandbox")
    model = registry.config_model("environment", offered.id)

    def validated(values: Any) -> Mapping[str, Any] | None:
        if model is None or values is None:
            return None
        try:
            return dict(model.model_validate(values).model_dump(mode="json"))
        except ValueError as error:
            raise UserError(f"the options of {offered.id!r} are not those of the server", found=str(error)) from None

    if not os.environ.get(TOKEN):
        os.environ[TOKEN] = secrets.token_urlsafe(GIVEN)
        say(f"token     export {TOKEN}={os.environ[TOKEN]}")
    token, timeout_s = server_token(), resolved.config.rollout.environment_timeout_s
    start = interpreters(spec, offered.python, offered.variables)
    hosted = HostedEnvironments(start, spec=spec, options=offered.options, timeout_s=timeout_s)
    hosted.examine()
    with listening_on(host, port) as listening:
        server = EnvironmentServer(
            hosted,
            listening,
            named=registry.named("environment", offered.id),
            token=token,
            most=most,
            timeout_s=timeout_s,
            validated=validated,
            say=say,
        )
        port = listening.getsockname()[1]
        address = f"{in_url(host)}:{port}"
        quoted = f"'{address}'" if ":" in host else address
        say(f"serving   the environment {offered.id!r} on {address}, at most {most} at a time; Ctrl-C ends it")
        options = [f"-p {plugin}"] * (plugin is not None) + [f"-r {recipe}"] * (recipe is not None)
        options += [f"-c {file}" for file in files]
        say(f'use       rlcore run {" ".join(options)} "environment.servers=[{quoted}]"')
        if not is_loopback(host):
            say("warning   the connections are not encrypted: whoever sees them can read and change them")
        with stops_handled(lambda *_: server.stop()):
            server.run()
    return 0


__all__ = ["serve"]
