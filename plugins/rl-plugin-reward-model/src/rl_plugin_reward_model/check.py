"""Check the reward model of a run before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.checks import Finding, failure
from rlcore.errors import UserError
from rlcore.json_files import read_json
from rlcore.models.config_file import read_config
from rlcore.models.folder import check_checksums, local_folder
from rlcore.models.reward_model import check_reward_model

from rl_plugin_reward_model.config import RewardModelConfig

if TYPE_CHECKING:
    from rlcore.config.resolved import ResolvedEnvironment
    from rlcore.session.session import RunSession


def check(run: RunSession, environment: ResolvedEnvironment, index: int) -> Iterator[Finding]:
    """Find a folder that is not that of a reward model.

    Raises:
        UserError: the folder cannot be used.
    """
    options = environment.reward_options[index]
    assert isinstance(options, RewardModelConfig)
    key = f"reward.{index}.model"
    folder = folder_of(options.model, where=key)
    tokens, rows = tokens_of(folder), read_config(folder).get("vocab_size")
    if tokens is not None and isinstance(rows, int) and tokens > rows:
        found = f"the tokenizer of {folder} has {tokens:,} tokens, and the model {rows:,} embeddings"
        yield failure(key, found, "use the tokenizer that the reward model was trained with")


def folder_of(model: str, *, where: str) -> Path:
    """Return the folder of a reward model.

    Raises:
        UserError: it does not exist, files are missing or damaged, or it is another model.
    """
    folder = local_folder(model, where=where)
    if folder is None:
        raise UserError(
            "a reward model must be on this machine",
            found=model,
            where=where,
            fix=f"hf download {model} --local-dir FOLDER, and give the folder",
        )
    check_checksums(folder)
    check_reward_model(folder, where=where)
    return folder


def tokens_of(folder: Path) -> int | None:
    """Return the largest token of a tokenizer plus 1; None if ``tokenizer.json`` does not list its tokens."""
    tree = read_json(folder / "tokenizer.json")
    model = tree.get("model") if isinstance(tree, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    added = tree.get("added_tokens") if isinstance(tree, dict) else None
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids += [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    numbers = [number for number in ids if isinstance(number, int)]
    return max(numbers) + 1 if numbers else None
