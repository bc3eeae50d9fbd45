"""Measure training on this machine's GPUs, unattended in about ten minutes, and write docs/results/gpu.md.

``uv run python tests/repo/gpu_page.py``, or with ``--model FOLDER`` for another model than a random one with the shape
of Qwen2.5-0.5B. ``--tiny`` tries the script with a tiny model on any machine, and prints the page.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from rlcore.models.shape import shape_of_folder
from rlcore_models.builtin.config import TinyQwen2Config
from rlcore_models.builtin.tiny_qwen2 import build
from transformers import AutoConfig, AutoModelForCausalLM

PAGE = Path(__file__).parents[2] / "docs" / "results" / "gpu.md"
PEAKS = {"B200": 2250e12, "H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "4090": 165e12}
"""Dense bfloat16 operations a second by name of the card, from the data sheets (SXM where there are several)."""
TEXTS = ("What is 17 plus 25? 0123456789", '<tool_call>\n{"name": "calculator", "arguments": {}}\n</tool_call>')
SIZES = {"hidden_size": 896, "num_hidden_layers": 24, "intermediate_size": 4864, "initializer_range": 0.02}
SIZES |= {"num_attention_heads": 14, "num_key_value_heads": 2}
STEPS = 4
COMMON = ("model.dtype=bfloat16", "evaluation.every=0", "checkpoint.every=0", 'trackers.use=["jsonl"]')
VLLM = ("rollout.engine=vllm", "rollout.vllm.sleep=true", "rollout.vllm.gpu_memory_utilization=0.5")
PARTS = ("rollout", "update", "sync", "step")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run took."""

    seconds: dict[str, float]
    """Median of each part of a step without the first one."""
    tokens: float
    """Trained tokens of a step."""
    memory: str


def random_model(folder: Path, *, tiny: bool) -> Path:
    """A model with random weights, whose tokenizer has a few hundred tokens."""
    build(folder, TEXTS, 0, TinyQwen2Config(positions=4096))
    if not tiny:
        config = AutoConfig.from_pretrained(folder)
        config.update(SIZES)
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


def runs(model: Path, *, tiny: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The name of each run and its words."""
    tasks, siblings, most, budget = (2, 2, 16, 1024) if tiny else (8, 8, 512, 16384)
    demonstrations, conversations = (16, 4) if tiny else (4096, 512)
    shared = ("-p", "gsm8k-tools", f"model={model}", f"trainer.max_tokens_per_batch={budget}", *COMMON)
    imitated = (
        *(*shared, "-r", "sft", "trainer.rollouts=false", "trainer.held_out=2"),
        *(f"trainer.demonstrations={demonstrations}", f"trainer.conversations_per_step={conversations}"),
    )
    reinforced = (  # the entropy trains tokens although all rewards are 0
        *(*shared, "warmup.steps=0", "algorithm.entropy=0.01"),
        *(f"trainer.tasks_per_step={tasks}", f"rollout.group_size={siblings}", f"rollout.max_new_tokens={most}"),
    )
    yield "supervised", imitated
    yield "reinforcement, `torch` engine", reinforced
    yield "reinforcement with an adapter", (*reinforced, "lora.rank=16")
    if find_spec("vllm") is not None and not tiny:
        yield "reinforcement, `vllm` on the same card, asleep during updates", (*reinforced, *VLLM)
    if (count := torch.cuda.device_count()) > 1 or tiny:
        processes = max(2, count)
        divided = ("strategy.id=fsdp2", f"strategy.processes={processes}", *([] if count else ["model.device=cpu"]))
        yield f"supervised, `fsdp2` × {processes}", (*imitated, *divided)


def measured(words: tuple[str, ...], folder: Path) -> Measured | str:
    """Run the command, and return what it took, or its error."""
    command = [sys.executable, "-m", "rlcore", "run", *words, f"trainer.steps={STEPS}", "name=run"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        return next((line for line in done.stderr.splitlines() if line.startswith("error")), done.stderr[-300:])
    run = folder / "runs" / "run"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    later = [line for line in lines if line["step"] > 1]
    seconds = {part: [line[f"time/{part}_s"] for line in later if f"time/{part}_s" in line] for part in PARTS}
    memory = re.search(r"memory +(peak .*)", (run / "output.log").read_text(encoding="utf-8"))
    return Measured(
        {part: statistics.median(times) for part, times in seconds.items() if times},
        statistics.median(line["tokens/trained"] for line in later),
        memory[1] if memory else "",
    )


def page(model: Path, folder: Path, *, tiny: bool) -> str:
    """The page of results."""
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    peak = next((rate for name, rate in PEAKS.items() if name in card), None)
    parameters = shape_of_folder(model).parameters
    rows, commands = list[str](), list[str]()
    for number, (name, words) in enumerate(runs(model, tiny=tiny)):
        (place := folder / str(number)).mkdir()
        found = measured(words, place)
        shown = [word.replace(str(model), "MODEL") for word in words]
        commands.append(f"    rlcore run {' '.join(shown)} trainer.steps={STEPS}")
        if isinstance(found, str):
            rows.append(f"| {name} | {found} | | | | |")
            continue
        times = ", ".join(f"{part} {seconds:.2f}" for part, seconds in found.seconds.items())
        update = found.seconds.get("update", found.seconds["step"])
        rate = 6 * parameters * found.tokens / update
        share = f"{rate / peak:.0%}" if peak is not None else "unknown peak"
        rows.append(f"| {name} | {found.tokens:,.0f} | {times} | {rate / 1e12:.2f} | {share} | {found.memory} |")
    return "\n".join([*_head(card, parameters), *rows, "", "The commands:", "", *commands]) + "\n"


def _head(card: str, parameters: int) -> Sequence[str]:
    return (
        "# Training on a GPU",
        "",
        f"`uv run python tests/repo/gpu_page.py` wrote this page on {time.strftime('%Y-%m-%d')} on {card},",
        f"with torch {torch.__version__} and a model of {parameters / 1e6:,.0f} M parameters. Times are medians of the",
        "steps after the first. The operations of an update are 6 per parameter and trained token: prompts and",
        "attention are not counted. Their share is relative to the peak of the card in bfloat16 (MFU).",
        "",
        "| Run | trained tokens a step | seconds | update, TFLOP/s | MFU | memory |",
        "|---|---|---|---|---|---|",
    )


def main() -> None:
    """Parse the arguments and write the page."""
    parser = argparse.ArgumentParser(description="Measure training on the GPUs of this machine.")
    parser.add_argument("--model", type=Path, help="a model folder; by default, a random model like Qwen2.5-0.5B")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, and print the page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlcore-gpu-") as place:
        folder = Path(place)
        text = page(arguments.model or random_model(folder / "model", tiny=arguments.tiny), folder, tiny=arguments.tiny)
    if arguments.tiny:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
