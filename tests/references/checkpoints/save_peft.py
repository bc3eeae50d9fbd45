"""What peft writes: ``python save_peft.py MODEL_FOLDER OUT MERGED``, an adapter and its own merge of it."""

from __future__ import annotations

import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM


def main(folder: str, out: str, merged: str) -> None:
    """An adapter with random factors on every linear layer."""
    torch.manual_seed(0)
    settings = LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", use_rslora=True, task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), settings)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    model.save_pretrained(out)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    PeftModel.from_pretrained(base, out).merge_and_unload().save_pretrained(merged)


if __name__ == "__main__":
    main(*sys.argv[1:4])
