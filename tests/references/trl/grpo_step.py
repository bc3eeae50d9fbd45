"""TRL a GRPO step at a time: ``python grpo_step.py MODEL_FOLDER SIZE PER_DEVICE_BATCH``, driven by ``worker.Gate``.

TRL with what makes it quick on a CPU: float32, no gradient checkpointing, no logging, no saving, one process.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from datasets import Dataset
from grpo_step_task import KL_COEFFICIENT, LEARNING_RATE, SIZES, prompts, score
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from worker import Gate

GATE = Gate()


class Turnstile(TrainerCallback):
    """Reports after each optimiser step and waits for the next one."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        control.should_training_stop = not GATE.wait(step=state.global_step, **self.seen)
        return control


def main(folder: str, size_name: str, batch: int) -> None:
    """Train until told to end."""
    size = SIZES[size_name]
    turnstile = Turnstile()

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        scores = [score(ids) for ids in completion_ids]
        turnstile.seen |= {"new_tokens": sum(map(len, completion_ids)), "reward": sum(scores) / len(scores)}
        return scores

    GATE.wait(pid=os.getpid())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages = [[{"role": "user", "content": text}] for text in prompts(512, size)]
    encoded = [tokenizer.apply_chat_template(m, add_generation_prompt=True, return_dict=False) for m in messages[:64]]
    turnstile.seen["prompt_tokens"] = sum(map(len, encoded)) / len(encoded)
    with tempfile.TemporaryDirectory() as output:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=output,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                per_device_train_batch_size=batch,
                gradient_accumulation_steps=size.rollouts // batch,
                num_generations=size.group_size,
                max_completion_length=size.new_tokens,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                beta=KL_COEFFICIENT,
                learning_rate=LEARNING_RATE,
                lr_scheduler_type="constant",
                max_steps=10**6,
                logging_strategy="no",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                seed=0,
            ),
            train_dataset=Dataset.from_dict({"prompt": messages}),
            processing_class=tokenizer,
            callbacks=[turnstile],
        )
        trainer.train()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
