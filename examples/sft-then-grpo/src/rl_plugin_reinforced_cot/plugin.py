"""The rlcore plugin: one dialect, and the keys that identify its files."""

from rlcore import DialectSpec, hookimpl


@hookimpl
def rlcore_dialects():
    """Register the dialect. Files are recognised by their top-level keys."""
    yield DialectSpec(
        id="reinforced-cot",
        target="rl_plugin_reinforced_cot.dialect:DIALECT",
        files=(("SFT",), ("GRPO",), ("model_path", "pipeline")),
        summary="The YAML files of Multimodal-Reinforce-CoT.",
    )
