"""A run whose model cannot be shown its tools is rejected before the model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_folders import CHATML, TEMPLATES, write_chat_folder
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry
from rlcore.session.checks import check_run
from rlcore.session.plan import RunPlan
from rlcore.session.session import RunSession


@pytest.fixture
def gemma(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "gemma", "gemma")


def model_folder(folder: Path, family: str) -> Path:
    """A folder whose weights would be rejected when they are loaded."""
    write_chat_folder(folder, *TEMPLATES[family])
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return folder


def session(folder: Path, *, tools: list[str] | None = None, purpose: Any = "run", **tables: Any) -> RunSession:
    environment = {"id": "gsm8k-tools"} | ({} if tools is None else {"tools": tools, "max_turns": 1})
    values = {
        "environment": environment,
        "reward": [{"id": "math-numeric-equal"}],
        "data": {"train": "generated", "evaluation": "generated"},
        "trainer": {"steps": 1, "tasks_per_step": 2},
        **tables,
        "model": {"path": str(folder), **tables.get("model", {})},
    }
    registry = Registry()
    values = {name: table for name, table in values.items() if table is not None}
    return RunSession(RunPlan.of(values, registry=registry, purpose=purpose), registry)


@pytest.mark.parametrize("purpose", ["run", "evaluation"])
def test_tools_that_the_template_cannot_show_are_rejected(gemma: Path, purpose: str) -> None:
    with pytest.raises(UserError, match="the chat template cannot show tools") as raised:
        check_run(session(gemma, purpose=purpose))
    assert raised.value.where == str(gemma)
    assert "model.hide_tools=true" in str(raised.value.fix)


def test_model_that_was_just_downloaded_is_checked_before_it_is_loaded(
    gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcore.session.components.download", lambda path, where: gemma)
    run = session(Path("owner/name"))
    check_run(run)
    with pytest.raises(UserError, match="the chat template cannot show tools"):
        run.model_folder()


def test_run_without_tools_or_with_hidden_tools_is_accepted(gemma: Path) -> None:
    check_run(session(gemma, tools=[]))
    run = session(gemma, model={"hide_tools": True})
    check_run(run)
    assert "tools are hidden" in run.chat_format(gemma).description()[0]  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"'plain' takes no model\.hide_tools") as raised:
        session(gemma, model={"hide_tools": True, "chat_format": "plain"}).chat_format(gemma)
    assert "model.chat_format=template" in str(raised.value.fix)


def test_tools_of_a_chatml_model_are_accepted(tmp_path: Path) -> None:
    check_run(session(model_folder(tmp_path / "chatml", "chatml")))
    changed = tmp_path / "changed.jinja"
    changed.write_text(CHATML.replace("message.content", "message.content|trim"), encoding="utf-8")
    with pytest.raises(UserError, match="cannot show tools") as raised:
        check_run(session(tmp_path / "chatml", model={"chat_template": str(changed)}))
    assert raised.value.where == str(changed)


def test_supervised_run_on_conversations_with_tools_is_rejected(gemma: Path, tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    asked, answer = {"role": "user", "content": "1 + 2?"}, {"role": "assistant", "content": "3"}
    called = [asked, {"role": "assistant", "content": "", "tool_calls": [call]}]
    called += [{"role": "tool", "tool_call_id": "c1", "content": "3"}, answer]
    file = tmp_path / "rows.jsonl"
    tables = {"data": {"id": "chat", "train": str(file)}, "trainer": {"id": "sft", "held_out": 1, "epochs": 1}}
    tables |= {"environment": None, "reward": None}
    offered = {"messages": [asked, answer], "tools": [{"type": "function", "function": {"name": "add"}}]}
    for rows, accepted in (([asked, answer], True), (called, False), (None, False)):
        last = offered if rows is None else {"messages": rows}
        file.write_text("\n".join(json.dumps(row) for row in [{"messages": [asked, answer]}, last]), encoding="utf-8")
        run = session(gemma, **tables)
        if accepted:
            check_run(run)
            continue
        with pytest.raises(UserError, match="the chat template cannot show tools"):
            check_run(run)


def test_server_of_messages_does_not_hide_tools(gemma: Path) -> None:
    from rlcore.models.weights import FolderWeights
    from rlcore_rollout.sampler.engine_client import make_model_client

    rollout = {"engine": "openai", "openai": {"base_url": "http://localhost:1/v1", "model": "m"}}
    run = session(gemma, purpose="evaluation", rollout=rollout, model={"hide_tools": True})
    check_run(run)
    with pytest.raises(UserError, match=r"without model\.hide_tools"):
        make_model_client(run, FolderWeights(folder=gemma))
