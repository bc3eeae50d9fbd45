"""The command ``rlcore serve openenv``."""

from __future__ import annotations

import asyncio
import os
import threading
from functools import partial

import click
from rlcore.cli.layering import gather, layer_options
from rlcore.cli.output import examples
from rlcore.cli.serving import address_options
from rlcore.config.resolve import resolve
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.episodes.scoring import Scorer
from rlcore.errors import UserError
from rlcore.event_loop import run
from rlcore.plugins.registry import Registry
from rlcore.session.components import RunComponents
from rlcore.session.exits import exits_reported, stops_handled
from rlcore.session.plan import RunPlan
from rlcore.specs import EnvironmentSpec
from rlcore.transport.network import TOKEN, in_url, is_loopback, listening_on, server_token
from rlcore.types import Group, Task, Trajectory

from rl_plugin_openenv.publishing import Published
from rl_plugin_openenv.server import OpenEnvServer

LOOK_S = 0.2
"""Time between looks whether the command should end."""


@click.command(
    short_help="Offer an environment as an OpenEnv server.",
    epilog=examples(
        "rlcore serve openenv -p gem",
        "rlcore serve openenv -p gsm8k-tools --port 8001 --most 64",
        "rlcore serve openenv -p gem data.env_id=game:Mastermind-v0-easy data.arguments={} data.opening=null",
    ),
)
@layer_options
@address_options(port=8000, most=64, counted="Sessions")
@exits_reported()
def serve_openenv(
    plugin: str | None,
    recipe: str | None,
    files: tuple[str, ...],
    overrides: tuple[str, ...],
    host: str,
    port: int,
    most: int,
) -> int:
    """Offer the environment of a recipe to clients of OpenEnv, until Ctrl-C.

    Each client has its own session. A reset takes a held-out task of the recipe by its seed, and the last step of
    an episode has the reward that a run would give it. If the variable RLCORE_SERVER_TOKEN is set, clients must send
    the header "Authorization: Bearer TOKEN".
    """
    registry = Registry()
    layered = gather(registry, plugin=plugin, recipe=recipe, files=files, overrides=overrides)
    resolved = resolve(layered.layers, registry, recipe=layered.recipe, purpose="evaluation")
    components = RunComponents(RunPlan(resolved=resolved, purpose="evaluation"), registry)
    try:
        published = published_environment(components)
        token = server_token() if os.environ.get(TOKEN) else None
        stopped = threading.Event()
        with listening_on(host, port) as listening, stops_handled(lambda *_: stopped.set()):
            server = OpenEnvServer(published, most=most, token=token, say=say)

            async def serve() -> None:
                async with await server.listen(listening):
                    url = f"http://{in_url(host)}:{listening.getsockname()[1]}"
                    say(f"serving   {published.name!r} on {url}, at most {most} sessions; Ctrl-C ends it")
                    if not is_loopback(host):
                        say("warning   the connections are not encrypted: whoever sees them can read and change them")
                        if token is None:
                            say(f"warning   clients need no token: set {TOKEN}")
                    while not stopped.is_set():
                        await asyncio.sleep(LOOK_S)

            run(serve())
    finally:
        components.discard()
    return 0


def published_environment(components: RunComponents) -> Published:
    """The environment of a plan, with its held-out tasks and its rewards.

    Raises:
        UserError: it cannot be offered.
    """
    if len(components.environments) != 1:
        found = counted(len(components.environments), "environment")
        raise UserError("a server offers one environment", found=found, fix="start a server for each of them")
    (offered,) = components.environments
    spec = components.registry.spec("environment", offered.id)
    assert isinstance(spec, EnvironmentSpec)
    if spec.runs_code:
        found, fix = f"{offered.id!r} runs code of the model in the sandbox of a run", "choose another environment"
        raise UserError("this environment cannot be offered to OpenEnv", found=found, fix=fix)
    if spec.action != "chat" or not hasattr(components.environment(offered.name), "reset"):
        found, fix = (
            f"{offered.id!r} is of another kind",
            "rlcore serve environment offers control environments to runs",
        )
        raise UserError("only chat environments can be offered to OpenEnv", found=found, fix=fix)
    timeout_s = components.config.rollout.environment_timeout_s
    scorer = Scorer(components.rewards(offered.name), timeout_s=components.config.rollout.reward_timeout_s)
    return Published(
        name=offered.id,
        description=spec.summary,
        tasks=components.dataset.tasks("evaluation"),
        make=partial(components.environment, offered.name),
        score=partial(_score, scorer),
        blocking=spec.blocking or offered.is_hosted,
        timeout_s=timeout_s,
    )


async def _score(scorer: Scorer, trajectory: Trajectory, task: Task) -> float | None:
    """The weighted sum of the rewards; None if the episode is not scored."""
    scored = await scorer.score(trajectory, task)
    return (await scorer.settle(Group(task=task, trajectories=(scored,)))).trajectories[0].reward


__all__ = ["published_environment", "serve_openenv"]
