"""Choose the sandbox of a run: the strongest one that is available, or exactly the one that the run names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlcore import event_loop
from rlcore.abilities import RunsCodeConfig
from rlcore.config.schema import AUTO
from rlcore.contracts import Sandbox
from rlcore.episodes.sandbox import open_session
from rlcore.errors import PluginError, SandboxFailure, UserError
from rlcore.plugin_calls import value_text
from rlcore.plugins.loading import pip_line
from rlcore.plugins.registry import Registry, asked, declared
from rlcore.specs import EnvironmentSpec, RewardSpec, SandboxSpec, ToolSpec
from rlcore.types import SandboxLimits, SandboxSupport

if TYPE_CHECKING:
    from rlcore.session.components import RunComponents


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxChoice:
    """A sandbox with what it guarantees on this machine."""

    spec: SandboxSpec
    support: SandboxSupport

    def line(self) -> str:
        """The name, the guarantees, and what is missing, in one line."""
        promised = "; ".join(self.support.guarantees) or "no guarantees"
        lacking = f". Not guaranteed: {'; '.join(self.support.lacks)}" if self.support.lacks else ""
        return f"{self.spec.id}: {promised}{lacking}"


def examine(registry: Registry, id: str, options: Any = None, limits: SandboxLimits | None = None) -> SandboxChoice:
    """Ask a sandbox whether it can be used on this machine, with these limits if it declares them.

    Raises:
        PluginError: there is no such sandbox, or its answer is not a `SandboxSupport`.
    """
    spec = registry.spec("sandbox", id)
    assert isinstance(spec, SandboxSpec)
    if spec.available is None:
        return SandboxChoice(spec=spec, support=SandboxSupport())
    what = f"the check of {registry.named('sandbox', id)}"
    check = registry.load_for("sandbox", spec, spec.available)
    support = asked(what, check, options, **declared(check, limits=limits or SandboxLimits()))
    if not isinstance(support, SandboxSupport):
        raise PluginError(
            f"{what} must return a SandboxSupport", found=value_text(support), fix=f"edit {spec.available}"
        )
    return SandboxChoice(spec=spec, support=support)


def ranked(registry: Registry) -> list[SandboxSpec]:
    """The sandboxes from which ``auto`` chooses, the strongest first."""
    specs = [spec for spec in registry.specs("sandbox") if isinstance(spec, SandboxSpec) and spec.strength is not None]
    return sorted(specs, key=lambda spec: -(spec.strength or 0))


def strongest(registry: Registry) -> SandboxChoice | None:
    """The sandbox that ``auto`` selects on this machine; None if none can be used."""
    choices = (examine(registry, spec.id) for spec in ranked(registry))
    return next((choice for choice in choices if choice.support.available), None)


def choose_sandbox(run: RunComponents) -> SandboxChoice:
    """The sandbox of a run.

    Raises:
        UserError: the sandbox that the run names cannot be used, or ``auto`` finds none.
    """
    id = run.config.sandbox.id
    origin = run.resolved.origin(("sandbox", "id"))
    if id != AUTO:
        choice = examine(run.registry, id, run.resolved.options.get("sandbox"), run.config.sandbox.limits)
        if not choice.support.available:
            other = strongest(run.registry)
            others = f"sandbox.id={other.spec.id}, which can be used here, or sandbox.id={AUTO}" if other else ""
            raise UserError(
                f"the sandbox {id!r} cannot be used on this machine",
                found=choice.support.reason,
                where=origin,
                fix="\nor ".join(filter(None, [choice.support.fix, others])) or None,
            )
        return choice
    if found := strongest(run.registry):
        return found
    if not run.registry.specs("sandbox"):
        raise UserError(
            "the run executes code that the model writes, and no sandbox is installed",
            where=origin,
            fix=pip_line(["rlcore-sandbox"]),
        )
    refused = [examine(run.registry, spec.id) for spec in ranked(run.registry)]
    reasons = "; ".join(f"{one.spec.id}: {one.support.reason}" for one in refused)
    fixes = [f"{one.spec.id}: {one.support.fix}" for one in refused if one.support.fix]
    raise UserError(
        "no sandbox can be used on this machine, and the run executes code that the model writes",
        found=reasons or "none that is chosen automatically",
        where=origin,
        fix="\nor ".join([*fixes, "use a sandbox service: sandbox.id=http sandbox.base_url=http://…"]),
    )


def importable(run: RunComponents, names: Sequence[str]) -> tuple[str, ...] | None:
    """The modules among ``names`` that code can import in the sandbox of a run, found by importing them there.

    Returns None if no sandbox can be used.

    Raises:
        UserError: the sandbox fails.
    """
    try:
        choice = run.sandbox_choice
    except UserError:
        return None
    try:
        return event_loop.run(_imported(run.sandbox(), names))
    except SandboxFailure as failure:
        where, fix = run.resolved.origin(("sandbox", "id")), "run rlcore doctor, or choose another sandbox.id"
        raise UserError(
            f"the sandbox {choice.spec.id!r} cannot say which modules code can import",
            found=str(failure),
            where=where,
            fix=fix,
        ) from failure


async def _imported(sandbox: Sandbox, names: Sequence[str]) -> tuple[str, ...]:
    try:
        session = await open_session(sandbox.open, ())
        found = [name for name in names if (await session.run(f"import {name}")).ok]
        await session.close()
    finally:
        await sandbox.close()
    return tuple(found)


def runs_code(run: RunComponents) -> bool:
    """Whether a selected environment, tool or reward declares that it runs code, or the run names a sandbox."""
    registry, config = run.registry, run.config
    specs = [registry.spec("reward", table.id) for table in config.reward]
    for environment in run.environments:
        options: tuple[object, ...] = (environment.options, environment.data)
        if all(one.runs_code for one in options if isinstance(one, RunsCodeConfig)):
            specs.append(registry.spec("environment", environment.id))
        specs += [registry.spec("reward", table.id) for table in environment.rewards]
        tools = getattr(environment.options, "tools", ())
        specs += [registry.spec("tool", id) for id in tools if isinstance(id, str)]
    declared = any(isinstance(one, (EnvironmentSpec, RewardSpec, ToolSpec)) and one.runs_code for one in specs)
    return declared or config.sandbox.id != AUTO
