"""Parses calls from fenced code blocks. The block is the only argument of a tool that runs it."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.types import ToolCall

from rlcore_rollout.parsers.calls import bad_call, call_id


class CodeFenceParser:
    """Treats every block fenced as one of ``languages`` as a call of ``tool`` with the code as ``argument``.

    Blocks in other languages, or without a language, are text.
    """

    def __init__(
        self, tool: str = "python", argument: str = "code", languages: Sequence[str] = ("python", "py")
    ) -> None:
        self.tool, self.argument, self.languages = tool, argument, tuple(languages)

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the text without the calls, and all calls in order. An unclosed block has ``error`` set."""
        kept: list[str] = []
        calls: list[ToolCall] = []
        lines = text.split("\n")
        position = 0
        while position < len(lines):
            fence, language = _opening(lines[position])
            end = _closing(lines, position + 1, fence) if fence else position
            block = lines[position + 1 : end]
            if not fence or language not in self.languages:
                kept += lines[position : end + 1]
            elif end == len(lines):
                expected = f"{fence}{language}, the code, and a line {fence}"
                problem = f"the code block is not closed with {fence}"
                calls.append(bad_call(problem, index=len(calls), expected=expected, name=self.tool))
            else:
                code = {self.argument: "\n".join(block)}
                calls.append(ToolCall(name=self.tool, arguments=code, id=call_id(len(calls))))
            position = end + 1
        return ("\n".join(kept).strip() if calls else text), tuple(calls)

    opening = "```"

    def end_of_call(self, text: str, start: int) -> int | None:
        """Return the end of the block after its fence; None if it is no whole block of code to run."""
        line = text[text.rfind("\n", 0, start) + 1 :].partition("\n")[0]
        fence, language = _opening(line)
        if not fence or language not in self.languages:
            return None
        end = text.find(f"\n{fence}", start)
        return None if end < 0 else end + 1 + len(fence)

    def render(self, call: ToolCall) -> str:
        """Return the text of a call as the model should write it."""
        code = str((call.arguments or {}).get(self.argument, ""))
        return f"```{self.languages[0]}\n{code}\n```"


def _opening(line: str) -> tuple[str, str]:
    """Return a line's opening fence of three or more backticks and its language; empty strings for other lines."""
    stripped = line.strip()
    language = stripped.lstrip("`")
    fence = stripped[: len(stripped) - len(language)]
    if len(fence) < 3 or "`" in language:
        return "", ""
    return fence, language.strip().lower()


def _closing(lines: Sequence[str], start: int, fence: str) -> int:
    """Return the index of the line that closes the fence, or the number of lines."""
    for index in range(start, len(lines)):
        stripped = lines[index].strip()
        if len(stripped) >= len(fence) and not stripped.strip("`"):
            return index
    return len(lines)
