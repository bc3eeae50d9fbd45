"""Run TRL's divergence of GKD on seeded logits: ``python distillation_outputs.py OUTPUT`` (safetensors, float64).

The file has the logits of student and teacher [tokens, vocabulary], and for each beta and temperature the loss per
token and its gradient with respect to the logits of the student.
"""

from __future__ import annotations

import importlib.metadata
import sys

import torch
from safetensors.torch import save_file
from trl.experimental.gkd.gkd_trainer import GKDTrainer

TOKENS, VOCABULARY = 13, 29
BETAS, TEMPERATURES = (0.0, 0.1, 0.5, 0.9, 1.0), (1.0, 0.7)


def main(output: str) -> None:
    """Compute the losses and write them."""
    generator = torch.Generator().manual_seed(7)
    student_MV, teacher_MV = (
        3 * torch.randn(TOKENS, VOCABULARY, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    found = {"student": student_MV, "teacher": teacher_MV}
    for beta in BETAS:
        for temperature in TEMPERATURES:
            leaf = student_MV.clone().requires_grad_()
            loss = GKDTrainer.generalized_jsd_loss(
                leaf[None], teacher_MV[None], beta=beta, temperature=temperature, num_items_in_batch=TOKENS
            )
            loss.backward()
            found |= {f"{beta}/{temperature}/value": loss.detach(), f"{beta}/{temperature}/gradient": leaf.grad}
    save_file(found, output, metadata={name: importlib.metadata.version(name) for name in ("trl", "torch")})


if __name__ == "__main__":
    main(*sys.argv[1:])
