"""Drive servers of ``rlcore serve openenv`` with the clients of OpenEnv: ``python drive.py game|tools URL [TOKEN]``.

Prints what they saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from openenv.core.generic_client import GenericEnvClient

SESSIONS = 16


async def play(url: str, headers: dict[str, str], seed: int) -> list[Any]:
    """Try every color until the door is open; the key of the second observation tells the right one."""
    async with GenericEnvClient(base_url=url, headers=headers) as client:
        first = await client.reset(seed=seed, episode_id=f"episode-{seed}")
        color = first.observation["text"].split()[1]
        await asyncio.sleep(0.1)  # all sessions are open at a time
        result = await client.step({"message": color if seed % 2 else "no color"})
        if not result.done:
            result = await client.step({"message": color})
        state = await client.state()
        try:
            await client.step({"message": 5})
            rejected = ""
        except RuntimeError as error:
            rejected = str(error)
        return [first.observation["text"], result.reward, result.done, state, rejected]


async def call(url: str, headers: dict[str, str]) -> list[Any]:
    async with GenericEnvClient(base_url=url, headers=headers) as client:
        first = await client.reset(seed=0)
        listed = await client.step({"type": "list_tools"})
        call = {"type": "call_tool", "tool_name": "calculator", "arguments": {"expression": "6 * 7"}}
        answer = await client.step(call)
        last = await client.step({"message": "The answer is 0."})
        return [
            first.observation["text"],
            listed.observation["tools"],
            answer.observation["result"],
            [last.reward, last.done, last.observation["metadata"]],
        ]


async def main() -> None:
    kind, url = sys.argv[1:3]
    headers = {"Authorization": f"Bearer {sys.argv[3]}"} if len(sys.argv) > 3 else {}
    if kind == "tools":
        print(json.dumps(await call(url, headers)))
    else:
        print(json.dumps(await asyncio.gather(*(play(url, headers, seed) for seed in range(SESSIONS)))))


asyncio.run(main())
