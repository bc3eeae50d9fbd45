"""What the model is shown: images, tools and the arguments of its chat format, checked before weights are loaded."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.abilities import ImagesConfig, ToolsConfig
from rlcore.checks import Finding, failure
from rlcore.console.wording import counted
from rlcore.contracts import ChatFormat, RendersImages
from rlcore.episodes.tool_environment import ToolEnvironment
from rlcore.errors import PluginError, RlcoreError, UserError
from rlcore.images.fitting import SETTINGS
from rlcore.models.adapter import is_adapter
from rlcore.models.config_file import CONFIG
from rlcore.models.folder import local_base, local_folder
from rlcore.models.vision_language import VisionLanguageModel, require_images
from rlcore.plugin_calls import value_text
from rlcore.plugins.registry import Registry, asked
from rlcore.specs import EnvironmentSpec
from rlcore.types import Message, ToolSchema

if TYPE_CHECKING:
    from rlcore.config.resolved import ResolvedEnvironment
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


def detected_chat_format(registry: Registry, folder: Path) -> str:
    """The id of the chat format that a plugin claims for a tokenizer's folder.

    Raises:
        PluginError: no format supports it.
    """

    def check(id: object) -> None:
        # An import path in a model folder must not run code.
        if not isinstance(id, str):
            raise TypeError(f"returned {value_text(id)}, expected the id of a chat format")
        if id not in {spec.id for spec in registry.specs("chat_format")}:
            raise ValueError(f"there is no chat format {id!r}")

    claimed: str | None = registry.plugins.claim("rlcore_chat_format", check, folder=folder)
    if claimed is None:
        raise PluginError(
            "no chat format supports this model's tokenizer",
            where=str(folder),
            fix="set model.chat_format; plain works with any tokenizer",
        )
    return claimed


def check_images(run: RunComponents, splits: Sequence[str]) -> Iterator[Finding]:
    """Check the model and the engine of a run whose tasks or environments have images.

    Raises:
        UserError: the model reads no images, or its image processor is missing or wrong.
    """
    if run.engine_spec.speaks == "messages":
        return
    tasks = (task for name in splits for task in run.dataset.tasks(name))
    counts = ((sum(len(message.images) for message in task.messages), task.id) for task in tasks)
    most, task = max(counts, default=(0, ""))
    options, key = run.options("engine"), f"rollout.{run.config.rollout.engine}.max_images"
    if isinstance(options, ImagesConfig) and most > options.max_images:
        reason = f"the engine accepts {counted(options.max_images, 'image')} in a prompt"
        fix = f"set {key}={most} or higher, or use tasks with fewer images"
        yield failure(key, f"{reason}: the task {task!r} has {most}", fix)
        return
    folder = local_folder(run.config.model.path)
    if folder is not None and is_adapter(folder):
        folder = local_base(folder)
    if folder is None:
        return
    needed = most or has_image_environment(run)
    if not needed and not (folder / SETTINGS).is_file():
        return  # it is used as a text model
    where = run.resolved.origin(("model", "path"))
    model = require_images(folder, where=where) if needed else VisionLanguageModel.of_folder(folder)
    processor = None if model is None else run.image_processor(folder)
    if model is not None and processor is not None:
        side = processor.token_side**2
        sees = f"{-(-processor.min_pixels // side):,} to {processor.max_pixels // side:,} tokens (model.images)"
        yield Finding(status="ok", text=f"the model is a {model.family}, which sees an image as {sees}")


def has_image_environment(run: RunComponents) -> bool:
    """Whether an environment states images among its modalities."""
    specs = (run.registry.spec("environment", one.id) for one in run.environments)
    return any(
        isinstance(spec, EnvironmentSpec) and spec.action == "chat" and "image" in spec.modalities for spec in specs
    )


def check_image_input(folder: Path, chat_format: ChatFormat, *, named: str, where: str) -> None:
    """Check that model, image processor and chat format of a folder fit together, before the weights are loaded.

    Args:
        folder: the model folder
        chat_format: the chat format of the folder
        named: the chat format, for messages
        where: the origin of the model's path

    Raises:
        UserError: the model cannot see images, or a part is missing or belongs to another model.
    """
    model = require_images(folder, where=where)
    if not isinstance(chat_format, RendersImages) or chat_format.image_processor is None:
        raise UserError(
            f"{named} cannot show images with this model folder",
            found="no image processor, no tokens for images, or a chat format for text",
            where=where,
            fix="use a model of Qwen2-VL, Qwen2.5-VL or Qwen3-VL with its image processor and model.chat_format=auto",
        )
    if chat_format.placeholder_token_ids[0] != model.placeholder:
        raise UserError(
            "the tokenizer belongs to another model",
            found=f"images are the token {chat_format.placeholder_token_ids[0]}, and {model.placeholder} in {CONFIG}",
            where=str(folder),
            fix="restore the tokenizer of this model",
        )


def check_tools_of_environments(run: RunComponents, folder: Path) -> None:
    """Render a question with the tools of each environment, as far as they are known before its first episode.

    Raises:
        UserError: the chat format of the model folder cannot show them.
    """
    for one in run.environments if run.engine_spec.speaks == "tokens" else ():
        if tools := tools_of(run, one):
            check_tools(run, folder, tools)


def check_tools(run: RunComponents, folder: Path, tools: Sequence[ToolSchema]) -> None:
    """Render a question with tools. Raises as `check_tools_of_environments`."""
    try:
        chat_format, named = run.chat_format(folder), run.registry.named("chat_format", run.chat_format_id(folder))
    except RlcoreError:
        return  # a part of the run that needs the chat format reports this; others run without one
    asked(f"prompt of {named}", chat_format.prompt, (Message(role="user", content="Hello"),), tools)


def tools_of(run: RunComponents, one: ResolvedEnvironment) -> Sequence[ToolSchema]:
    """The tools that an environment offers in every episode, as far as they are known before the first."""
    if not one.is_hosted:
        target = run.load("environment", one.id)
        if isinstance(target, type) and issubclass(target, ToolEnvironment):
            return [tool.schema for tool in run.environment(one.name).tools.values()]  # type: ignore[attr-defined]
    if isinstance(one.options, ToolsConfig) and isinstance(one.options.tools, (list, tuple)):
        return [tool_named(id) for id in one.options.tools]
    return ()


def tool_named(name: str) -> ToolSchema:
    """A stand-in for a tool of which only the name is known."""
    return ToolSchema(name=name, description="", parameters={"type": "object", "properties": {}})
