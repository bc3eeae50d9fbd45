"""The ``rlcore`` command. Subcommands are imported on first use, so that ``--help`` is fast."""

from __future__ import annotations

import errno
import io
import os
import sys

import click

from rlcore.cli.text import examples, printable
from rlcore.errors import EngineError, PluginError, ProcessError, UserError, did_you_mean
from rlcore.models.weights import let_waiting_threads_sleep

COMMANDS = {
    "run": ("rlcore.cli.run:run", "Train a policy."),
    "eval": ("rlcore.cli.evaluate:evaluate", "Evaluate a policy on held-out tasks."),
    "data": ("rlcore.cli.data:data", "Prepare and inspect data."),
    "config": ("rlcore.cli.config:config", "Show, explain and compare configurations."),
    "plugins": ("rlcore.cli.plugins:plugins", "List installed plugins and their problems."),
    "doctor": ("rlcore.cli.doctor:doctor", "Check this machine, and suggest fixes."),
}
"""rlcore's own commands: target and summary. They take precedence over plugin commands of the same name."""


class LazyGroup(click.Group):
    """A command group that imports commands on first use, and loads plugins only for unknown names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the built-in commands, in the order of typical use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when it does not exist."""
        if cmd_name in COMMANDS:
            from rlcore.plugins.loading import load_attribute

            target, _ = COMMANDS[cmd_name]
            command = load_attribute(target, what=f"the command {cmd_name!r}", needs=("rlcore-core",))
        elif cmd_name.startswith("-"):
            return None
        else:
            command = _plugin_command(cmd_name)
        if command is not None and not isinstance(command, click.Command):
            raise PluginError(f"the command {cmd_name!r} is not a click command", found=type(command).__name__)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands and their summaries without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click, but suggest similar commands, including those of plugins."""
        name = args[0]
        command = self.get_command(ctx, name)
        if command is not None:
            return name, command, args[1:]
        if name.startswith("-"):
            return super().resolve_command(ctx, args)
        groups = {group: self.get_command(ctx, group) for group in COMMANDS}
        inner = [key for key, group in groups.items() if isinstance(group, click.Group) and name in group.commands]
        if inner:
            raise click.UsageError(f"there is no command {name!r}; did you mean 'rlcore {inner[0]} {name}'?", ctx)
        near = did_you_mean(name, [*COMMANDS, *_plugin_command_names()])
        raise click.UsageError(f"there is no command {name!r}" + (f"; {near}" if near else ""), ctx)


def _plugin_command_names() -> list[str]:
    from rlcore.plugins.registry import Registry

    return [spec.id for spec in Registry().specs("command")]


def _plugin_command(name: str) -> click.Command | None:
    from rlcore.plugins.registry import Registry

    registry = Registry()
    if name not in [spec.id for spec in registry.specs("command")]:
        return None
    command: click.Command = registry.load("command", name)
    return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "rlcore run --plugin gsm8k-tools        train on this machine, in minutes",
        "rlcore run -p gsm8k-tools --dry-run    show the configuration of a run",
        "rlcore plugins list                    list installed plugins",
        "rlcore doctor                          check this machine",
    )
    + "\n\nPlugins can add commands; rlcore plugins show NAME lists them.",
)
@click.version_option(None, "--version", package_name="rlcore-core", prog_name="rlcore", message="%(prog)s %(version)s")
def cli() -> None:
    """Train LLM agents with reinforcement learning."""


MACHINE_ERRORS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free disk space, or use another folder"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "change the permissions, or use another folder"),
    errno.ENAMETOOLONG: "use a shorter name: file systems allow 255 bytes for a name, and 4,096 for a path",
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.ELOOP), "give another path"),
}
"""Errors of the file system that any command can meet, with their fixes."""


def _machine_failure(error: Exception) -> UserError | None:
    """An error of the file system as bad input, whichever library raised it; None for other errors."""
    if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
        return UserError(printable(str(error)), fix=MACHINE_ERRORS[error.errno])
    if os.strerror(errno.ENOSPC) in str(error):  # some libraries raise their own types
        return UserError(printable(str(error).splitlines()[0]), fix=MACHINE_ERRORS[errno.ENOSPC])
    return None


def main() -> int:
    """Run the command line, and return the exit status."""
    return exit_status(cli, "rlcore")


def exit_status(command: click.Command, name: str) -> int:
    """Run a command under ``name``, and return the exit status.

    2 for bad input, 1 for a failed engine or process, 130 for Ctrl-C, 70 for an unexpected exception, which is a bug:
    it becomes one line, and a file with the trace.
    """
    let_waiting_threads_sleep()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files and texts need not be valid Unicode
    try:
        return _run(command, name)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        if isinstance(error, Exception) and (failure := _machine_failure(error)) is not None:
            click.echo(f"error: {failure}", err=True)
            return 2
        from rlcore.cli.escaped import report

        return report(error)


def _run(command: click.Command, name: str) -> int:
    try:
        status = command.main(prog_name=name, standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is None:  # options without a value have none
            error.ctx = click.Context(command, info_name=name)
        error.show()
        return error.exit_code
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        return 2
    except (EngineError, ProcessError) as error:
        click.echo(f"error: {error}", err=True)
        return 1
    return status if isinstance(status, int) else 0
