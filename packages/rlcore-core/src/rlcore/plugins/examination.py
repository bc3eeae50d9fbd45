"""Check loaded plugins without importing their components, for ``rlcore plugins list --check``."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from rlcore.errors import UserError
from rlcore.plugins.discovery import Complaint, State, is_host
from rlcore.plugins.installed import Offer
from rlcore.plugins.loading import load_attribute, resource
from rlcore.plugins.registry import KINDS, Registry

Key = tuple[str, str]
"""Distribution and name of a plugin."""


def examine(registry: Registry) -> dict[Key, tuple[Complaint, ...]]:
    """Problems of plugins that load, which their authors should fix. Calls all register hooks."""
    found: dict[Key, list[Complaint]] = {}
    for kind in KINDS:
        offers = registry.offers(kind)
        for offer in offers:
            complaints = found.setdefault((offer.plugin.distribution, offer.plugin.name), [])
            complaints += _check_targets(kind, offer)
            complaints += _check_conflicts(
                kind, offer, [o for o in offers if o.spec.id == offer.spec.id and o is not offer]
            )
    for plugin in registry.plugins.all():
        if plugin.state is State.OK:
            complaints = found.setdefault((plugin.distribution, plugin.name), [])
            complaints[:0] = plugin.complaints
            if not plugin.hooks:
                problem = f"{plugin.module} implements no hooks"
                complaints.append(
                    Complaint(problem=problem, fix="decorate the rlcore_… functions with @rlcore.hookimpl")
                )
    return {key: tuple(dict.fromkeys(complaints)) for key, complaints in found.items() if complaints}


def _check_targets(kind: str, offer: Offer) -> Iterator[Complaint]:
    spec, plugin = offer.spec, offer.plugin
    for name in ("target", "config", "prepare", "prepare_config", "label", "label_config"):
        target = getattr(spec, name, None)
        if target is None:
            continue
        try:
            if kind == "recipe":
                resource(target)
            elif not _is_defined_in_source(target):
                load_attribute(target, needs=spec.needs)
        except UserError as error:
            text = f"{error.message}: {error.found}" if error.found else error.message
            own = error.fix or ""
            near = f"; {own}" if own.startswith("did you mean") else ""
            problem = f"{name} of the {kind.replace('_', ' ')} {spec.id!r}: {text}{near}"
            other = f"edit the spec in {plugin.module}, or pip install --upgrade {plugin.distribution}"
            yield Complaint(problem=problem, fix=own if own.startswith("edit ") else other)


def _check_conflicts(kind: str, offer: Offer, rivals: list[Offer]) -> Iterator[Complaint]:
    if not rivals or is_host(offer.plugin):
        return
    what = f"the {kind.replace('_', ' ')} {offer.spec.id!r}"
    own = next((rival.plugin for rival in rivals if is_host(rival.plugin)), None)
    if own is not None:
        problem = f"{what} is built into {own.distribution}, so this one is never used"
        yield Complaint(problem=problem, fix=f"change the id in {offer.plugin.module}")
        return
    others = " and ".join(sorted({rival.plugin.origin for rival in rivals}))
    problem = f"{what} is also registered by {others}, so neither can be used"
    yield Complaint(problem=problem, fix=f"change the id, or disable one: RLCORE_DISABLE_PLUGINS={offer.plugin.name}")


def _is_defined_in_source(target: str) -> bool:
    """Whether the source of the module defines the name, so that no import is needed to verify it."""
    module, _, attribute = target.partition(":")
    name = re.escape(attribute.partition(".")[0])
    try:
        found = importlib.util.find_spec(module)
        source = Path(found.origin or "").read_text(encoding="utf-8") if found is not None else ""
        compile(source, module, "exec", ast.PyCF_ONLY_AST)
    except (Exception, SystemExit):  # the import reports the actual error
        return False
    defined = rf"(async )?(def|class) {name}\b|{name}(: .+)? = |(from \S+ )?import (.*\W)?{name}$"
    return bool(name) and re.search(f"^({defined})", source, re.MULTILINE) is not None
