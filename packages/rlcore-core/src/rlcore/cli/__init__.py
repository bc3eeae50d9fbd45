"""The ``rlcore`` command. Each command is imported when it is typed, so that help is instant."""

from __future__ import annotations

import errno
import os

import click

from rlcore.cli.text import examples
from rlcore.errors import EngineError, PluginError, ProcessError, UserError, did_you_mean
from rlcore.weights import let_waiting_threads_sleep

COMMANDS = {
    "run": ("rlcore.cli.run:run", "Train a policy."),
    "eval": ("rlcore.cli.evaluate:evaluate", "Measure a policy on held-out tasks."),
    "data": ("rlcore.cli.data:data", "Prepare data, and look at it."),
    "config": ("rlcore.cli.config:config", "Show, explain and compare configurations."),
    "plugins": ("rlcore.cli.plugins:plugins", "List what is installed, and what is wrong with it."),
    "doctor": ("rlcore.cli.doctor:doctor", "Check this machine; every finding says what mends it."),
}
"""rlcore's own commands: target and one line. A plugin's command of the same name is never reached."""


class LazyGroup(click.Group):
    """A group that knows its commands as strings and asks plugins only for names that are not its own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Rlcore's own commands, in the order of a first day."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None for a name that nobody offers."""
        if cmd_name in COMMANDS:
            from rlcore.loading import load_attribute

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
        """The commands with their one line, nothing imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, but unknown names are compared with all commands, those of plugins included."""
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
    from rlcore.registry import Registry

    return [spec.id for spec in Registry().specs("command")]


def _plugin_command(name: str) -> click.Command | None:
    from rlcore.registry import Registry

    registry = Registry()
    if name not in [spec.id for spec in registry.specs("command")]:
        return None
    command: click.Command = registry.load("command", name)
    return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "rlcore run --plugin gsm8k-tools        learn on this machine, in minutes",
        "rlcore run -p gsm8k-tools --dry-run    show what a run would do",
        "rlcore plugins list                    what is installed",
        "rlcore doctor                          what this machine can do",
    )
    + "\n\nPlugins may add commands of their own: rlcore plugins show NAME lists them.",
)
@click.version_option(None, "--version", package_name="rlcore-core", prog_name="rlcore", message="%(prog)s %(version)s")
def cli() -> None:
    """Train any agent that acts with a model by reinforcement learning."""


def _machine_failure(error: Exception) -> str | None:
    """What a full disk or a folder that may not be written to says, whichever library met it; None for all else."""
    full = os.strerror(errno.ENOSPC)
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}:
        return str(error)
    return str(error).splitlines()[0] if full in str(error) else None


def main() -> int:
    """Run the command line; returns its exit status."""
    return exit_status(cli, "rlcore")


def exit_status(command: click.Command, name: str) -> int:
    """Run a command under ``name``: 2 is bad input, 1 a failed engine or process of the run, 130 Ctrl-C."""
    let_waiting_threads_sleep()
    try:
        status = command.main(prog_name=name, standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        return 2
    except (EngineError, ProcessError) as error:
        click.echo(f"error: {error}", err=True)
        return 1
    except Exception as error:
        if (found := _machine_failure(error)) is None:
            raise
        click.echo(f"error: {found}\n  fix    make room or give the permission, or work in another folder", err=True)
        return 2
    return status if isinstance(status, int) else 0
