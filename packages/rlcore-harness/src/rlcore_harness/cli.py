"""The command ``rlcore serve policy``."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading

import click
from rlcore.cli.output import examples
from rlcore.console.terminal import say
from rlcore.event_loop import run
from rlcore.session.exits import exits_reported, stops_handled
from rlcore.transport.network import TOKEN, is_loopback, listening_on

PORT = 7090
KEY_BYTES = 24
LOOK_S = 0.2
"""Time between looks whether the command should end."""


@click.command(
    epilog=examples(
        "rlcore serve policy runs/NAME                              the policy of a run",
        "rlcore serve policy runs/NAME/checkpoints/000060",
        "rlcore serve policy Qwen/Qwen2.5-3B-Instruct rollout.engine=vllm",
        "rlcore serve policy runs/NAME rollout.temperature=0.2 rollout.max_new_tokens=1024",
    )
)
@click.argument("model", metavar="RUN|MODEL")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-c", "--config", "files", multiple=True, metavar="FILE", help="TOML or YAML file with settings.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@exits_reported()
def serve_policy(model: str, overrides: tuple[str, ...], files: tuple[str, ...], host: str, port: int) -> int:
    """Answer agents with the policy of a run, or with a model, until Ctrl-C.

    Agents use it as in training, through the API of chat completions, of OpenAI's Responses or of Anthropic's messages.
    It is rendered, sampled and parsed as in a run. Nothing is trained. The key is that in the variable
    RLCORE_SERVER_TOKEN; without it, the command creates a key and prints it.
    """
    from rlcore_harness.server import PolicyServer
    from rlcore_harness.serving import ServedPolicy, components_to_serve

    components = components_to_serve(model, overrides, files)
    key = (
        os.environ.get(TOKEN) or f"rl-{secrets.token_urlsafe(KEY_BYTES)}"
    )  # a key that begins with - could be read as an option
    stopped = threading.Event()

    async def answer(policy: ServedPolicy, server: PolicyServer) -> None:
        with server.session(policy, loop=asyncio.get_running_loop(), key=key) as session:
            say(f"model     {components.model_name} in the engine {components.config.rollout.engine!r}; Ctrl-C ends it")
            say(f"openai    export OPENAI_BASE_URL={session.base_url} OPENAI_API_KEY={key}")
            say(f"anthropic export ANTHROPIC_BASE_URL={session.root_url} ANTHROPIC_API_KEY={key}")
            if not is_loopback(host):
                say("warning   the connections are not encrypted: whoever sees them can read the key and the requests")
            while not stopped.is_set():
                await asyncio.sleep(LOOK_S)
        await policy.close()

    try:
        with listening_on(host, port) as listening, stops_handled(lambda *_: stopped.set()):
            run(answer(ServedPolicy(components), PolicyServer(listening)))
    finally:
        components.discard()
    return 0


__all__ = ["serve_policy"]
