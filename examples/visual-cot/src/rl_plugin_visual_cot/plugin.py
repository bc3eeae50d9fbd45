"""The rlcore plugin: only names and import paths."""

from rlcore import ConfigAdapterSpec, DatasetSpec, EnvironmentSpec, RewardSpec, hookimpl

HERE = "rl_plugin_visual_cot"

rlcore_specs = [
    EnvironmentSpec(
        id="visual-cot",
        target=f"{HERE}.environment:VisualCot",
        config=f"{HERE}.config:EnvironmentConfig",
        modalities=frozenset({"text", "image"}),
        summary="Questions about a picture, answered with a chain of thought.",
    ),
    RewardSpec(
        id="visual-cot",
        target=f"{HERE}.rewards:VisualCotReward",
        config=f"{HERE}.config:RewardConfig",
        summary="Correct answer, exact format, and a chain of thought that leads to the answer.",
    ),
    RewardSpec(
        id="visual-cot-legacy",
        target=f"{HERE}.legacy:legacy_reward",
        minimum=-0.8,
        maximum=3.3,
        rewards_silence=True,
        summary="The reward of the original program with its known errors, for comparisons.",
    ),
    DatasetSpec(
        id="visual-cot",
        target=f"{HERE}.dataset:VisualCotData",
        config=f"{HERE}.config:DataConfig",
        prepare=f"{HERE}.prepare:prepare",
        prepare_config=f"{HERE}.config:PrepareConfig",
        summary="Chain-of-thought files with pictures, or generated pictures of shapes.",
    ),
    ConfigAdapterSpec(
        id="reinforced-cot",
        target=f"{HERE}.files.adapter:ADAPTER",
        files=(("SFT",), ("GRPO",), ("model_path", "pipeline")),
        summary="The YAML files of Multimodal-Reinforce-CoT.",
    ),
]


@hookimpl
def rlcore_rollouts_scored(run, step, purpose, groups):
    """Write the samples of evaluations, in runs with ``observers = ["visual-cot"]``."""
    if purpose != "evaluation":
        return None
    from rl_plugin_visual_cot.observer import evaluated

    return evaluated(run, groups)
