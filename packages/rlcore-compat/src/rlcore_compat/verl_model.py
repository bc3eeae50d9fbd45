"""Translation of verl's keys for the model and its adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, never, nothing

MODEL = "actor_rollout_ref.model"
MODEL_PATH = Meaning(ours="model.path", also={"warmup.steps": 0}, why="the given model is trained without a warm-up")
DTYPES = {"bf16": "bfloat16", "fp32": "float32", "bfloat16": "bfloat16", "float32": "float32"}
_LOADING = "affects the time to load the weights only"
_KERNELS = "affects speed and memory only; the trainer selects the kernels"
_NO_CODE = "code in model folders is not executed"
_WITH_RANK = "only with lora_rank above 0"


def dtype(value: Any, words: Words) -> str:
    """The data type of the weights."""
    if value not in DTYPES:
        raise Refused(f"must be one of {', '.join(DTYPES)}")
    return DTYPES[value]


def _rank(value: Any, words: Words) -> Any:
    return Several({}) if value in (0, None) else value


def _of_lora(ours: str) -> Meaning:
    def read(value: Any, words: Words) -> Several:
        return Several({} if words.get(f"{MODEL}.lora_rank", 0) in (0, None) else {ours: value})

    return Meaning(ours=ours, why=_WITH_RANK, read=read)


def _exclude(value: Any, words: Words) -> None:
    if value is not None and "visual" not in str(value):
        raise Refused("lora.targets lists the layers to adapt: leave out those to exclude")


def _adapter(value: Any, words: Words) -> Any:
    return Several({}) if value is None else value


THE_MODEL: Mapping[str, Meaning] = {
    f"{MODEL}.path": MODEL_PATH,
    f"{MODEL}.tokenizer_path": nothing(
        "the tokenizer is loaded from the model folder",
        only=(None,),
        otherwise="the tokenizer must be in the model folder",
    ),
    f"{MODEL}.torch_dtype": Meaning(ours="model.dtype", read=dtype),
    f"{MODEL}.trust_remote_code": nothing(f"{_NO_CODE}; a model that needs it is refused"),
    f"{MODEL}.use_remove_padding": nothing("batches are always packed, without padding"),
    f"{MODEL}.enable_gradient_checkpointing": Meaning(ours="trainer.gradient_checkpointing"),
    f"{MODEL}.enable_activation_offload": nothing("affects memory only; activations stay on the device"),
    f"{MODEL}.use_fused_kernels": nothing(_KERNELS),
    f"{MODEL}.fused_kernel_options.*": nothing(_KERNELS),
    f"{MODEL}.use_liger": nothing(_KERNELS),
    f"{MODEL}.use_shm": nothing(_LOADING),
    f"{MODEL}.external_lib": nothing(_NO_CODE, only=(None,), otherwise=_NO_CODE),
    f"{MODEL}.custom_chat_template": nothing(
        "model.chat_format sets the format",
        only=(None,),
        otherwise="model.chat_format sets the format of conversations",
    ),
    f"{MODEL}.override_config.*": never("the configuration of the model folder is used: change its config.json"),
    f"{MODEL}.lora_rank": Meaning(ours="lora.rank", why="0 trains all weights", read=_rank),
    f"{MODEL}.lora_alpha": _of_lora("lora.alpha"),
    f"{MODEL}.target_modules": _of_lora("lora.targets"),
    f"{MODEL}.exclude_modules": Meaning(
        ours=None, why="lora.targets selects the layers; vision layers are not trained", read=_exclude
    ),
    f"{MODEL}.lora_adapter_path": Meaning(ours="lora.adapter", why="the adapter to continue from", read=_adapter),
    f"{MODEL}.mtp.enable": nothing(
        "False has no effect", only=(False,), otherwise="heads that predict several tokens are not trained: give False"
    ),
    f"{MODEL}.mtp.*": nothing("only with mtp.enable=True"),
    f"{MODEL}.lora.*": never("these are the adapters of Megatron: lora_rank, lora_alpha and target_modules"),
    f"{MODEL}.lora.merge": nothing("affects speed only; the run decides how the engine receives an adapter"),
}
"""By key of verl."""
