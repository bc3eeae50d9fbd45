"""A model beside the policy that reads the same tokens: a reference, or the trunk of a critic.

Axes: ``V`` embeddings, ``D`` the width of the model.
"""

from __future__ import annotations

from pathlib import Path

from rlcore.errors import UserError
from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.model import load_policy


def load_second(folder: Path, policy: PreTrainedModel, *, where: str) -> PreTrainedModel:
    """The model of a folder, in the policy's precision and on its device.

    Args:
        folder: a Hugging Face folder
        policy: whose tokens it will read
        where: the key that named the folder

    Raises:
        UserError: as `load_policy`, or it has no embedding for some of the policy's tokens.
    """
    model = load_policy(folder, dtype=str(policy.dtype).removeprefix("torch."), device=policy.device)
    known, wanted = _embeddings(model), _embeddings(policy)
    if known < wanted:
        raise UserError(
            f"{where} names a model that reads the policy's tokens: it needs embeddings for all {wanted:,}",
            found=f"{known:,} embeddings: a model of another vocabulary",
            where=str(folder),
            mend=f"{where}=FOLDER of a model with the policy's tokenizer",
        )
    return model


def _embeddings(model: PreTrainedModel) -> int:
    weight_VD = model.get_input_embeddings().weight
    assert isinstance(weight_VD, Tensor)
    return len(weight_VD)
