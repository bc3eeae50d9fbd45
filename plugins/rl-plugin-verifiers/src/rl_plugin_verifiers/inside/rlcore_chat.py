"""The harness of a taskset that brings none: a chat with the tools of the task, in the process of the taskset.

Harnesses of verifiers start a program for each episode, which takes seconds. This one asks through the same server, so
that limits, stop conditions and records are the same.
"""

# mypy: disable-error-code="import-not-found,misc,unused-ignore"

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.runtimes import ProgramResult

ENDED = "the policy no longer answers in this episode"
"""Part of the error with which the policy refuses a request because its turns or its context are used up."""


class ChatHarness(vf.Harness[vf.HarnessConfig]):
    """Ends at the first answer without tool calls."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> Any:
        """Ask the policy until it answers without calls, or no longer answers."""
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += map(message_to_wire, prompt or [])
        key, timeout = {"Authorization": f"Bearer {secret}"}, self.config.tool_timeout
        servers = {name: {"url": url, "timeout": timeout} for name, url in mcp_urls.items()}
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()))
            tools, dispatch, connections = await connect_mcp({"mcpServers": servers}, stack)
            body: dict[str, Any] = {"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})}
            while True:
                async with client.post(f"{endpoint}/chat/completions", json=body, headers=key) as answer:
                    text = await answer.text()
                if not answer.ok:
                    if ENDED in text:
                        return ProgramResult(exit_code=0, stdout="", stderr="")
                    raise RuntimeError(f"the request failed with status {answer.status}: {text[:2000]}")
                message = json.loads(text)["choices"][0]["message"]
                messages.append(message)
                if not message.get("tool_calls"):
                    return ProgramResult(exit_code=0, stdout="", stderr="")
                for call in message["tool_calls"]:
                    content = await _called(call["function"], dispatch, connections)
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


async def _called(function: dict[str, Any], dispatch: dict[str, Any], connections: dict[str, Any]) -> Any:
    """The answer of a tool, or what is wrong with the call, for the model."""
    name = function["name"]
    if name not in dispatch:
        return f"error: there is no tool {name!r}; the tools are {', '.join(dispatch) or 'none'}"
    arguments = json.loads(function["arguments"] or "{}")
    return await call_mcp(connections, dispatch, name, arguments)


__all__ = ["ChatHarness"]
