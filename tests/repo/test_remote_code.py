"""No call may run code from a model's folder: each says so itself, because the default asks on a terminal."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from workspace import ROOT

LOADING = frozenset(
    {"from_pretrained", "from_config", "AsyncEngineArgs", "EngineArgs", "LLM", "get_tokenizer", "get_config"}
)
NO_CODE = frozenset({"AutoHfQuantizer", "LoraConfig", "PeftModel"})
"""Classes that load no code and have no such argument."""


def calls(source: str) -> Iterator[ast.Call]:
    """The calls that load a model, a tokenizer or a configuration."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        owner = getattr(getattr(function, "value", None), "id", "")
        if name in LOADING and owner not in NO_CODE:
            yield node


def refuses_code(call: ast.Call, source: str) -> bool:
    """Whether the call passes ``trust_remote_code=False``, itself or in a dictionary of the same file."""
    for keyword in call.keywords:
        if keyword.arg == "trust_remote_code":
            return isinstance(keyword.value, ast.Constant) and keyword.value.value is False
    spread = any(keyword.arg is None for keyword in call.keywords)
    return spread and '"trust_remote_code": False' in source


def test_every_call_refuses_code_of_models() -> None:
    found, accepted = 0, []
    for path in sorted(path for folder in ("packages", "plugins") for path in (ROOT / folder).glob("*/src/**/*.py")):
        source = path.read_text(encoding="utf-8")
        if not any(name in source for name in LOADING):
            continue
        for call in calls(source):
            found += 1
            if not refuses_code(call, source):
                accepted.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert found >= 6
    assert accepted == []
