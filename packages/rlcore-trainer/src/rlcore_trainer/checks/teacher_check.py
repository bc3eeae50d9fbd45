"""Check that a teacher reads the tokens of the policy, before either is loaded. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.checks import Finding, failure, failure_of, unread
from rlcore.errors import RlcoreError, UserError
from rlcore.json_files import read_json
from rlcore.models.adapter import is_adapter
from rlcore.models.config_file import read_config
from rlcore.models.folder import download, local_folder
from rlcore.models.shape import shape_of_config
from rlcore.specs import EnvironmentSpec
from rlcore.types import Message, ToolSchema

from rlcore_trainer.algorithms.config import AlgorithmConfig

if TYPE_CHECKING:
    from rlcore.contracts import ChatFormat
    from rlcore.session.session import RunSession

KEY = "algorithm.distillation.teacher"
_FIX = (
    "choose a teacher with the tokenizer and the chat template of the policy, or train on the answers of this one "
    "(trainer.id=sft), which needs neither"
)
_CONVERSATION = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="Hello"),
    Message(role="assistant", content="Hello!"),
    Message(role="user", content="How are you?"),
)
_TOOL = ToolSchema(
    name="search",
    description="Search.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)


def check(run: RunSession, algorithm: AlgorithmConfig) -> Iterator[Finding]:
    """Find settings of distillation that have no effect, and a teacher that cannot teach the policy."""
    table, found = algorithm.distillation, run.resolved
    if table.teacher is None:
        keys = ("divergence", "beta", "coefficient", "dtype")
        yield from unread(
            found, "algorithm.distillation", keys, "the run has no teacher", f"{KEY}=FOLDER, or remove it"
        )
        if algorithm.advantage.id == "none" and not algorithm.kl.coefficient and not algorithm.entropy:
            reason = "rewards are not trained on, and there is nothing else to train on"
            yield failure("algorithm.advantage", reason, f"{KEY}=FOLDER, or another advantage, such as grpo")
        return
    if table.divergence != "jsd":
        reason, fix = f"{table.divergence} does not use it", "algorithm.distillation.divergence=jsd, or remove it"
        yield from unread(found, "algorithm.distillation", ["beta"], reason, fix)
    specs = [run.registry.spec("environment", one.id) for one in found.environments]
    if any(isinstance(spec, EnvironmentSpec) and spec.action != "chat" for spec in specs):
        yield failure(KEY, "a teacher compares tokens, and the policy of this environment has none", "remove it")
        return
    try:
        teacher, policy = local_folder(table.teacher), local_folder(run.config.model.path)
        if teacher is not None and policy is not None:
            require_same_text(run, policy, teacher)
        elif teacher is not None:
            _require_full_model(teacher)
    except UserError as error:
        yield failure_of(error, KEY)


def teacher_folder(path: str) -> Path:
    """Return the folder of a teacher, which is downloaded if necessary.

    Raises:
        UserError: there is no such model, or it cannot be downloaded.
    """
    return local_folder(path, where=KEY) or download(path, where=KEY)


def require_same_text(run: RunSession, policy: Path, teacher: Path) -> None:
    """Check that the tokens of the policy are the same text for the teacher, in the same chat template.

    Raises:
        UserError: they are not, and the first difference is named; or the teacher is an adapter.
    """
    _require_full_model(teacher)
    known, wanted = _texts(teacher), _texts(policy)
    for token, text in sorted(wanted.items()):
        if (other := known.get(token)) != text:
            found = f"token {token} is {text!r} for the policy, and {_named(other)} for the teacher"
            raise UserError("the teacher must have the tokenizer of the policy", found=found, where=KEY, fix=_FIX)
    rows, needed = (shape_of_config(read_config(folder), parameters=0).vocabulary for folder in (teacher, policy))
    if rows < needed:
        found = f"{rows:,} tokens of the teacher, and {needed:,} of the policy"
        raise UserError("the teacher must know every token of the policy", found=found, where=KEY, fix=_FIX)
    for tools in ((), (_TOOL,)):
        try:
            theirs, own = run.chat_format(teacher), run.chat_format(policy)
            texts = _rendered(own, tools), _rendered(theirs, tools)
        except RlcoreError:
            continue  # what the run renders is checked elsewhere, with the policy's template
        if texts[0] != texts[1]:
            raise UserError(
                "the teacher must have the chat template of the policy",
                found=_difference(*texts),
                where=KEY,
                fix=f"{_FIX}; model.chat_template=FILE uses one template for both",
            )


def _require_full_model(teacher: Path) -> None:
    if is_adapter(teacher):
        fix = f"rlcore merge {teacher} --out FOLDER, and {KEY}=FOLDER"
        raise UserError("the teacher must be a full model", found="an adapter", where=str(teacher), fix=fix)


def _texts(folder: Path) -> Mapping[int, str]:
    """Return the text of each token of a folder's tokenizer.

    Raises:
        UserError: the tokenizer cannot be read.
    """
    path = folder / "tokenizer.json"
    try:
        definition = read_json(path)
        vocabulary = definition["model"]["vocab"]
        pairs = (
            vocabulary.items() if isinstance(vocabulary, dict) else ((one[0], i) for i, one in enumerate(vocabulary))
        )
        added = ((one["content"], one["id"]) for one in definition.get("added_tokens") or ())
        return {int(token): str(text) for text, token in (*pairs, *added)}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        fix = "save the tokenizer of the model there again"
        raise UserError("the tokenizer cannot be read", found=str(error), where=str(path), fix=fix) from None


def _rendered(chat_format: ChatFormat, tools: tuple[ToolSchema, ...]) -> str:
    return chat_format.decode(chat_format.prompt(_CONVERSATION, tools))


def _difference(policy: str, teacher: str) -> str:
    """Return where two texts differ first, with what follows there."""
    pairs = enumerate(zip(policy, teacher, strict=False))
    start = next((i for i, (one, other) in pairs if one != other), min(len(policy), len(teacher)))
    parts = [repr(text[max(0, start - 10) : start + 30]) for text in (policy, teacher)]
    return f"after {start} characters, {parts[0]} for the policy, and {parts[1]} for the teacher"


def _named(text: str | None) -> str:
    return "unknown" if text is None else repr(text)
