"""``rlcore plugins``: what is installed, in which state, and what it offers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from rlcore.cli.text import examples
from rlcore.discovery import Plugin, State, discover

if TYPE_CHECKING:
    from rlcore.registry import Registry

MARKS = {State.OK: "✓", State.FOUND: "·", State.DISABLED: "-"}


@click.group(epilog=examples("rlcore plugins list --check", "rlcore plugins show gsm8k-tools"))
def plugins() -> None:
    """List what is installed, and what is wrong with it."""


@plugins.command("list", epilog=examples("rlcore plugins list", "rlcore plugins list --check --json"))
@click.option("--check", is_flag=True, help="Import every plugin and call its hooks; exit 1 if one is unusable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_plugins(check: bool, as_json: bool) -> None:
    """List the installed plugins. Without --check nothing of theirs is imported."""
    registry = _loaded() if check else None
    found = registry.plugins.all() if registry else discover()
    offered = _offered(registry) if registry else {}
    if as_json:
        click.echo(json.dumps([_as_json(plugin, offered) for plugin in found], indent=2, ensure_ascii=False))
    else:
        _print_table(found, offered)
        if not check:
            click.echo("\n· found, not imported: --check imports each and tells what it offers")
    if check and any(plugin.state not in (State.OK, State.DISABLED) for plugin in found):
        sys.exit(1)


@plugins.command(epilog=examples("rlcore plugins show gsm8k-tools", "rlcore plugins show core --json"))
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, as_json: bool) -> None:
    """Show what one plugin offers."""
    registry = _loaded()
    plugin = registry.plugin(name)
    offered = _offered(registry)
    if as_json:
        click.echo(json.dumps(_as_json(plugin, offered), indent=2, ensure_ascii=False))
        return
    _print_table([plugin], {})
    for kind, rows in offered.get((plugin.distribution, plugin.name), {}).items():
        click.echo(f"\n{kind.replace('_', ' ')}")
        width = max(len(row["id"]) for row in rows)
        for row in rows:
            click.echo(f"  {row['id']:<{width}}  {row['summary']}".rstrip())


def _loaded() -> Registry:
    """A registry whose plugins are imported and whose register hooks have all been called."""
    from rlcore.registry import KINDS, Registry

    registry = Registry()
    for kind in KINDS:
        registry.offers(kind)
    return registry


def _offered(registry: Registry) -> dict[tuple[str, str], dict[str, list[dict[str, str]]]]:
    """By plugin and kind, what is offered."""
    from rlcore.registry import KINDS

    offered: dict[tuple[str, str], dict[str, list[dict[str, str]]]] = {}
    for kind in KINDS:
        for offer in registry.offers(kind):
            spec, key = offer.spec, (offer.plugin.distribution, offer.plugin.name)
            row = {"id": spec.id, "summary": spec.summary, "target": spec.target}
            offered.setdefault(key, {}).setdefault(kind, []).append(row)
    return offered


def _as_json(plugin: Plugin, offered: dict[tuple[str, str], dict[str, list[dict[str, str]]]]) -> dict[str, object]:
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "module": plugin.module,
        "state": plugin.state.value,
        "problem": plugin.problem,
        "fix": plugin.fix,
        "notes": list(plugin.notes),
        "hooks": list(plugin.hooks),
        "offers": offered.get((plugin.distribution, plugin.name), {}),
    }


def _print_table(found: list[Plugin], offered: dict[tuple[str, str], dict[str, list[dict[str, str]]]]) -> None:
    name_width = max((len(plugin.name) for plugin in found), default=0)
    origin_width = max((len(plugin.origin) for plugin in found), default=0)
    for plugin in found:
        kinds = offered.get((plugin.distribution, plugin.name), {})
        counts = ", ".join(f"{len(rows)} {kind.replace('_', ' ')}" for kind, rows in kinds.items())
        state = counts if plugin.state is State.OK and offered else plugin.state.value
        mark = MARKS.get(plugin.state, "✗")
        click.echo(f"{mark} {plugin.name:<{name_width}}  {plugin.origin:<{origin_width}}  {state}".rstrip())
        for text in (plugin.problem, plugin.fix and f"fix: {plugin.fix}", *(f"note: {note}" for note in plugin.notes)):
            if text:
                click.echo(f"    {text}")
    if not found:
        click.echo("no plugin is installed; pip install rlcore brings the first ones")
