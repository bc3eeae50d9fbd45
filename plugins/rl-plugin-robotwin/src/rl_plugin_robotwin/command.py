"""``rlcore robotwin …``: each command is a module of its own, which is imported when the command is called."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "evaluate": "rl_plugin_robotwin.evaluation.cli:evaluate",
    "train": "rl_plugin_robotwin.published.launcher:train",
}
"""``module:attribute`` of each command."""


class Commands(click.Group):
    """A group that imports a command on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Commands)
def robotwin() -> None:
    """Robots: the parts of rl-plugin-robotwin that have their own commands."""
