"""``rlcore plugins``: list installed plugins, their states and components, and create the package of a new one."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlcore.cli.output import examples, json_option, print_json
from rlcore.console.invocation import as_typed, started_by_uv
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.plugins.creation import NAMES, create, missing, run_command
from rlcore.plugins.discovery import Plugin, State, discover
from rlcore.plugins.loading import pip_line

if TYPE_CHECKING:
    from rlcore.plugins.registry import Registry

MARKS = {State.OK: "✓", State.FOUND: "·", State.DISABLED: "-"}
Key = tuple[str, str]
"""Distribution and name of a plugin."""
Offered = dict[str, list[dict[str, str]]]
"""The components of a plugin, by kind."""


@click.group(
    epilog=examples(
        "rlcore plugins list --check",
        "rlcore plugins show gsm8k-tools",
        "rlcore plugins new my-game --kind environment",
    )
)
def plugins() -> None:
    """List installed plugins and their problems, and create new ones."""


@plugins.command("list", epilog=examples("rlcore plugins list", "rlcore plugins list --check --json"))
@click.option("--check", is_flag=True, help="Import plugins and call their hooks; exit with 1 on problems.")
@json_option("Print JSON.")
def list_plugins(check: bool, as_json: bool) -> int:
    """List installed plugins. They are imported only with --check."""
    found, offered = discover(), dict[Key, Offered]()
    if check:
        from rlcore.plugins.examination import examine
        from rlcore.plugins.registry import Registry

        registry = Registry()
        complaints = examine(registry)
        offered = _offered(registry)
        found = [replace(plugin, complaints=complaints.get(_key(plugin), ())) for plugin in registry.plugins.all()]
    if as_json:
        print_json([_as_json(plugin, offered) for plugin in found], indent=2)
    else:
        _print_table(found, offered)
        if not check:
            say("", "· found, not imported; --check imports plugins and lists their components")
    failed = any(plugin.complaints or plugin.state not in (State.OK, State.DISABLED) for plugin in found)
    return int(check and failed)


@plugins.command(epilog=examples("rlcore plugins show gsm8k-tools", "rlcore plugins show core --json"))
@click.argument("name")
@json_option("Print JSON.")
def show(name: str, as_json: bool) -> None:
    """Show the components of a plugin."""
    from rlcore.plugins.registry import Registry

    registry = Registry()
    offered = _offered(registry)
    plugin = registry.plugin(name)
    if as_json:
        print_json(_as_json(plugin, offered), indent=2)
        return
    _print_table([plugin], {})
    for kind, rows in offered.get(_key(plugin), {}).items():
        say("", kind.replace("_", " "))
        width = max(len(row["id"]) for row in rows)
        for row in rows:
            say(f"  {row['id']:<{width}}  {row['summary']}".rstrip())


@plugins.command(
    epilog=examples(
        "rlcore plugins new my-game --kind environment",
        "rlcore plugins new brevity --kind reward --output ../brevity",
    )
)
@click.argument("name")
@click.option("--kind", type=click.Choice(list(NAMES)), required=True, help="What the plugin provides.")
@click.option("--output", metavar="FOLDER", help="The folder to create, or an empty one.  [default: rl-plugin-NAME]")
def new(name: str, kind: str, output: str | None) -> None:
    """Create a package for a plugin of your own: a small one that works, with its tests, to be changed step by step."""
    folder = Path(output or f"rl-plugin-{name}")
    create(kind, name, folder)
    place = shlex.quote(str(folder))
    editable = shlex.quote(f"{folder if folder.is_absolute() else f'./{folder}'}[dev]")
    uv, uv_run = ("uv ", "uv run ") if started_by_uv() else ("", "")
    absent = missing(folder)
    commands = [
        *([pip_line(absent)] if absent else []),
        f"{uv}pip install -e {editable}",
        f"{as_typed('rlcore plugins list --check')} && {uv_run}pytest {place}",
        as_typed(run_command(folder)),
    ]
    lines = [f"{label:<10}{command}" for label, command in zip(("next", "", "", ""), commands, strict=False)]
    say(f"created   {folder}, with the {kind} {name!r}", *lines)


def _offered(registry: Registry) -> dict[Key, Offered]:
    """The components of each plugin. Calls all register hooks."""
    from rlcore.plugins.registry import KINDS

    offered: dict[Key, Offered] = {}
    for kind in KINDS:
        for offer in registry.offers(kind):
            row = {"id": offer.spec.id, "summary": offer.spec.summary, "target": offer.spec.target}
            offered.setdefault(_key(offer.plugin), {}).setdefault(kind, []).append(row)
    return offered


def _key(plugin: Plugin) -> Key:
    return plugin.distribution, plugin.name


def _as_json(plugin: Plugin, offered: dict[Key, Offered]) -> dict[str, object]:
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "module": plugin.module,
        "state": plugin.state.value,
        "problem": plugin.problem,
        "fix": plugin.fix,
        "complaints": [{"problem": complaint.problem, "fix": complaint.fix} for complaint in plugin.complaints],
        "notes": list(plugin.notes),
        "hooks": list(plugin.hooks),
        "offers": offered.get(_key(plugin), {}),
    }


def _print_table(found: list[Plugin], offered: dict[Key, Offered]) -> None:
    name_width = max((len(plugin.name) for plugin in found), default=0)
    origin_width = max((len(plugin.origin) for plugin in found), default=0)
    for plugin in found:
        kinds = offered.get(_key(plugin), {})
        counts = ", ".join(counted(len(rows), kind.replace("_", " ")) for kind, rows in kinds.items())
        state = counts if plugin.state is State.OK and offered else plugin.state.value
        mark = "!" if plugin.usable and plugin.complaints else MARKS.get(plugin.state, "✗")
        say(f"{mark} {plugin.name:<{name_width}}  {plugin.origin:<{origin_width}}  {state}".rstrip())
        complaints = [text for one in plugin.complaints for text in (one.problem, f"fix: {one.fix}")]
        notes = [f"note: {note}" for note in plugin.notes]
        for text in (plugin.problem, plugin.fix and f"fix: {plugin.fix}", *complaints, *notes):
            if text:
                say(f"    {text}")
    if not found:
        say(f"no plugins are installed; run {pip_line(['rlcore'])}")
