"""The ``rlcore`` command. Subcommands are imported on first use, so that ``--help`` is fast."""

from __future__ import annotations

import errno
import io
import sys

import click

from rlcore.atomic_files import FREE_DISK_SPACE, is_full_disk
from rlcore.cli.interrupts import interrupts_handled
from rlcore.cli.output import examples
from rlcore.console.escaping import printable
from rlcore.console.invocation import as_typed
from rlcore.console.terminal import log_to_terminal, open_standard_streams, say
from rlcore.errors import (
    ComponentExitError,
    DivergenceError,
    EngineError,
    ExplainedError,
    PluginError,
    ProcessError,
    RlcoreError,
    UserError,
    did_you_mean,
)
from rlcore.models.threads import let_waiting_threads_sleep
from rlcore.redaction import forget, remember_arguments
from rlcore.session.exits import Terminated, status_of, terminations_raised

COMMANDS = {
    "run": ("rlcore.cli.run:run", "Train a policy."),
    "eval": ("rlcore.cli.evaluate:evaluate", "Evaluate a policy on held-out tasks."),
    "diagnose": ("rlcore.cli.diagnose:diagnose", "Say why a run does not learn."),
    "data": ("rlcore.cli.data:data", "Prepare and inspect data."),
    "config": ("rlcore.cli.config:config", "Show, explain and compare configurations."),
    "plugins": ("rlcore.cli.plugins:plugins", "List installed plugins and their problems, and create new ones."),
    "serve": ("rlcore.cli.serve:serve", "Offer an environment, a reward, a sandbox or a policy."),
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
            from rlcore.cli.plugin_commands import plugin_command

            command = plugin_command(cmd_name)
        if command is not None and not isinstance(command, click.Command):
            raise PluginError(f"the command {cmd_name!r} is not a click command", found=type(command).__name__)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands and their summaries without importing them, followed by those of plugins."""
        from rlcore.cli.plugin_commands import plugin_commands

        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])
        if others := [row for row in plugin_commands() if row[0] not in COMMANDS]:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(others)

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
        from rlcore.cli.plugin_commands import plugin_commands

        near = did_you_mean(name, [*COMMANDS, *(known for known, _ in plugin_commands())])
        raise click.UsageError(f"there is no command {name!r}" + (f"; {near}" if near else ""), ctx)


EXIT_STATUS = """\b
Exit status:
  0    everything that the command was asked to do is done
  1    it failed while it ran, a check failed, or nothing could be scored
  2    bad input: nothing was started
  70   an unexpected exception, which is a bug
  130  interrupted (SIGINT); 143  terminated (SIGTERM, SIGHUP)"""
"""The last lines of the help; ``docs/exit-status.md`` explains them."""


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "rlcore run --plugin gsm8k-tools        train on this machine, in minutes",
        "rlcore run -p gsm8k-tools --dry-run    show the configuration of a run",
        "rlcore plugins list                    list installed plugins",
        "rlcore doctor                          check this machine",
    )
    + "\n\n"
    + EXIT_STATUS,
)
@click.version_option(None, "--version", package_name="rlcore-core", prog_name="rlcore", message="%(prog)s %(version)s")
def cli() -> None:
    """Train LLM agents with reinforcement learning."""


MACHINE_ERRORS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), FREE_DISK_SPACE),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "change the permissions, or use another folder"),
    errno.ENAMETOOLONG: "use a shorter name: file systems allow 255 bytes for a name, and 4,096 for a path",
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.ELOOP), "give another path"),
}
"""Errors of the file system that any command can meet, with their fixes."""


def _machine_failure(error: BaseException) -> UserError | None:
    """An error of the file system as bad input, whichever library raised it; None for other errors."""
    if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
        return UserError(str(error), fix=MACHINE_ERRORS[error.errno])
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # of pathlib, before Python 3.13
        return UserError(str(error), fix=MACHINE_ERRORS[errno.ELOOP])
    if isinstance(error, Exception) and is_full_disk(error):
        return UserError(str(error).splitlines()[0], fix=FREE_DISK_SPACE)
    return None


def main() -> int:
    """Run the command line, and return the exit status."""
    open_standard_streams()  # before any other file takes their descriptors
    with interrupts_handled():
        return exit_status(cli, "rlcore")


def exit_status(command: click.Command, name: str) -> int:
    """Run a command under ``name``, print its error, and return the exit status (see `EXIT_STATUS`)."""
    log_to_terminal()
    forget()
    remember_arguments(sys.argv[1:])
    let_waiting_threads_sleep()
    try:
        return _run(command, name)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        if (failure := _machine_failure(error)) is not None:
            return _refused(failure)
        from rlcore.cli.escaped import report

        return report(error)


def _run(command: click.Command, name: str) -> int:
    try:
        with terminations_raised():
            status = command.main(prog_name=name, standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        cause = error.__cause__ if isinstance(error, click.exceptions.Abort) else error
        say("terminated" if isinstance(cause, Terminated) else "interrupted", err=True)
        return status_of(cause)
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is None:  # options without a value have none
            error.ctx = click.Context(command, info_name=name)
        shown = io.StringIO()
        error.show(file=shown)
        text = shown.getvalue().replace(error.message, printable(error.message))
        say(*text.rstrip("\n").expandtabs(4).split("\n"), err=True)  # tabs of click; those of input are escaped
        return error.exit_code
    except (UserError, ComponentExitError, DivergenceError, EngineError, ProcessError) as error:
        return _refused(error)
    return status if isinstance(status, int) else 0


def _refused(error: RlcoreError) -> int:
    first, *others = map(as_typed, error.lines()) if isinstance(error, ExplainedError) else str(error).split("\n")
    indent = "" if isinstance(error, ExplainedError) else "  "
    say(f"error: {first}", *(f"{indent}{line}" for line in others), err=True)
    return error.exit_status
