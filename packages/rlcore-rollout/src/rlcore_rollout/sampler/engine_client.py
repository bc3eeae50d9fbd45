"""The client of a run's engine, with the checks that need the model's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.contracts import RendersImages
from rlcore.errors import EngineError, PluginError, UserError
from rlcore.models.config_file import CONFIG, context_tokens, read_config
from rlcore.models.reward_model import check_policy
from rlcore.plugin_calls import value_text
from rlcore.specs import EngineSpec
from rlcore.types import Completion, Prompt, Sampling

from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.model_client import ChatClient, ModelClient, TokenClient

if TYPE_CHECKING:
    from rlcore.config.schema import RolloutTable
    from rlcore.contracts import ChatFormat, WeightSource
    from rlcore.session.components import RunComponents

NO_LIMIT = 2**31 - 1
"""Length of a context in tokens if neither the run nor the model limits it."""


class NotStarted:
    """The place of an engine that a dry run does not start."""

    def __init__(self, config: object, source: WeightSource, context: EngineContext) -> None: ...

    async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Fail."""
        raise EngineError("a dry run does not start the engine")

    async def release(self, session: str) -> None:
        """Do nothing."""

    async def load_weights(self, source: WeightSource) -> int:
        """Fail."""
        raise EngineError("a dry run does not start the engine")

    async def close(self) -> None:
        """Do nothing."""


def make_model_client(run: RunComponents, source: WeightSource, *, sampled_during_updates: bool = False) -> ModelClient:
    """The client for the run's engine, in messages or in tokens of the model's folder; see `EngineContext`."""
    rollout, model = run.config.rollout, run.config.model
    context = EngineContext(
        seed=run.config.seed,
        max_context_tokens=rollout.max_context_tokens,
        device=model.device,
        dtype=model.dtype,
        quantization=model.quantization,
        timeout_s=rollout.engine_timeout_s,
        sampled_during_updates=sampled_during_updates,
    )
    spec, named = run.registry.spec("engine", rollout.engine), run.registry.named("engine", rollout.engine)
    max_context_tokens = rollout.max_context_tokens or NO_LIMIT
    if isinstance(spec, EngineSpec) and spec.speaks == "messages":
        for name in ("chat_template", "chat_template_kwargs", "hide_tools"):
            if getattr(model, name):
                send = f", or send it: rollout.{rollout.engine}.extra_body.chat_template_kwargs"
                raise UserError(
                    f"the engine {rollout.engine!r} renders messages on its server, without model.{name}",
                    where=run.resolved.origin(("model", name)),
                    fix=f"remove it{send if name != 'hide_tools' else ''}",
                )
        engine = run.load("engine", rollout.engine)(run.options("engine"), source, context)
        return ChatClient(engine=engine, max_context_tokens=max_context_tokens, engine_name=named)
    folder = source.folder or run.model_folder()
    check_policy(folder)
    chat_format = run.chat_format(folder)
    format_name = run.registry.named("chat_format", run.chat_format_id(folder))
    _check_stops(chat_format, format_name)
    vocabulary = _check_vocabulary(folder)
    max_context_tokens = min(max_context_tokens, context_tokens(folder) or NO_LIMIT)
    skipped = run.trial and isinstance(spec, EngineSpec) and spec.starts
    make = NotStarted if skipped else run.load("engine", rollout.engine)
    images = chat_format.image_processor if isinstance(chat_format, RendersImages) else None
    engine = make(run.options("engine"), source, replace(context, images=images))
    return TokenClient(
        engine=engine,
        chat_format=chat_format,
        max_context_tokens=max_context_tokens,
        vocabulary=vocabulary,
        engine_name=named,
        format_name=format_name,
    )


def sampling_of(rollout: RolloutTable, client: ModelClient) -> Sampling:
    """The sampling parameters of a run, without a seed."""
    return Sampling(
        max_new_tokens=rollout.max_new_tokens,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        stop_token_ids=client.chat_format.stop_token_ids if isinstance(client, TokenClient) else (),
        stop=tuple(rollout.stop),
        suppressed_token_ids=client.placeholder_token_ids,
    )


async def answer_of(method: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a method of an engine, which may be a plain one."""
    answer = method(*arguments)
    return await answer if isawaitable(answer) else answer


def _check_stops(chat_format: ChatFormat, name: str) -> None:
    """Reject a chat format whose stop tokens are no ids."""
    ids: object = chat_format.stop_token_ids
    if not isinstance(ids, Sequence) or not all(type(index) is int for index in ids):
        raise PluginError(
            f"stop_token_ids of {name} must be ids", found=value_text(ids), fix="return a tuple of integers"
        )


def _check_vocabulary(folder: Path) -> int:
    """The number of embeddings. Rejects a tokenizer with more tokens."""
    path = folder / "tokenizer.json"
    config = read_config(folder) if (folder / CONFIG).is_file() else {}
    rows = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
    if not rows or not path.is_file():
        return int(rows or NO_LIMIT)
    from rlcore_rollout.chat.tokenizer import read_tokenizer  # an engine with its own model needs no tokenizers

    highest = max(read_tokenizer(path).get_vocab().values(), default=0)
    if highest >= rows:
        raise UserError(
            "the tokenizer has more tokens than the model",
            found=f"a token with the id {highest}, {rows} embeddings",
            where=str(folder),
            fix="use the tokenizer that the model was trained with",
        )
    return int(rows)
