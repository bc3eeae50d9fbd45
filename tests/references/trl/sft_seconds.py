"""One epoch of TRL's SFTTrainer: ``python sft_seconds.py MODEL ROWS OUTPUT BATCH RATE``, the first three of them files.

ROWS is a JSON list of ``input_ids`` and ``assistant_masks``, from which TRL makes the labels of assistant-only loss:
both sides train the same tokens, and neither is measured while it encodes. OUTPUT gets the seconds from the first
step's beginning to the last one's end, the trained tokens, and the mean loss over the steps.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tempfile
import time
from typing import Any

from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer


class Clock(TrainerCallback):
    """When training began and ended."""

    began = ended = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Called by the trainer."""
        self.began = time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Called by the trainer."""
        self.ended = time.perf_counter()


def main(model_folder: str, rows_path: str, output_path: str, batch: str, rate: str) -> None:
    """Train and write what was measured."""
    with open(rows_path, encoding="utf-8") as file:
        rows = json.load(file)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=f"{model_folder}/tokenizer.json", pad_token="<|endoftext|>", eos_token="<|im_end|>"
    )
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype="float32", attn_implementation="sdpa")
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings = SFTConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=int(batch),
            num_train_epochs=1,
            learning_rate=float(rate),
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            max_length=None,
            packing=False,
            gradient_checkpointing=False,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = SFTTrainer(
            model=model,
            args=settings,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[clock],
        )
        result = trainer.train()
    measured = {
        "seconds": clock.ended - clock.began,
        "tokens": sum(sum(row["assistant_masks"]) for row in rows),
        "loss": result.training_loss,
        "version": importlib.metadata.version("trl"),
    }
    with open(output_path, "w", encoding="utf-8") as file:
        json.dump(measured, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
