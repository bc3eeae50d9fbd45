"""The keys of ``[model]`` that a chat format receives as arguments."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import UserError

if TYPE_CHECKING:
    from rlcore.session.components import RunComponents

TEMPLATE = "template"
"""The chat format that renders a Jinja template."""
_KEYS = {"template_kwargs": "chat_template_kwargs", "template": "chat_template", "hide_tools": "hide_tools"}
"""Keys by argument."""


def chat_arguments(run: RunComponents, id: str, factory: Any) -> dict[str, Any]:
    """Return the arguments that the run sets for a chat format. Raises `UserError` for one that it does not take."""
    model = run.config.model
    given: dict[str, Any] = {}
    if model.tool_parser != "auto":
        given["parser"] = run.load("tool_parser", model.tool_parser)()
    if model.chat_template_kwargs:
        given["template_kwargs"] = model.chat_template_kwargs
    if model.chat_template is not None:
        given["template"] = Path(model.chat_template).expanduser()
    if model.hide_tools:
        given["hide_tools"] = True
    accepted = inspect.signature(factory).parameters
    for name, key in _KEYS.items():
        if name in given and name not in accepted:
            raise UserError(
                f"the chat format {id!r} takes no model.{key}",
                where=run.resolved.origin(("model", key)),
                fix=f"remove it, or set model.chat_format={TEMPLATE}",
            )
    return given


__all__ = ["TEMPLATE", "chat_arguments"]
