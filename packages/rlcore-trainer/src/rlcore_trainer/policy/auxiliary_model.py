"""A second model that reads the same tokens as the policy: a reference, or the trunk of a critic.

Axes: ``V`` embeddings, ``D`` the width of the model.
"""

from __future__ import annotations

from pathlib import Path

from rlcore.errors import UserError
from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.policy.model import load_policy


def load_second(folder: Path, policy: PreTrainedModel, *, where: str) -> PreTrainedModel:
    """Load the model of a folder, in the policy's precision and on its device.

    Args:
        folder: a Hugging Face folder
        policy: the model whose tokens it will read
        where: the key that names the folder

    Raises:
        UserError: as for `load_policy`, or the model has no embedding for some of the policy's tokens.
    """
    model = load_policy(folder, dtype=str(policy.dtype).removeprefix("torch."), device=policy.device)
    known, wanted = _embeddings(model), _embeddings(policy)
    if known < wanted:
        raise UserError(
            f"the model of {where} needs embeddings for all {wanted:,} tokens of the policy",
            found=f"{known:,} embeddings",
            where=str(folder),
            fix=f"{where}=FOLDER of a model with the policy's tokenizer",
        )
    return model


def _embeddings(model: PreTrainedModel) -> int:
    weight_VD = model.get_input_embeddings().weight
    assert isinstance(weight_VD, Tensor)
    return len(weight_VD)
