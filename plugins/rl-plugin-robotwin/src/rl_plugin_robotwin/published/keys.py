"""What becomes of each key of ``rl_config.yaml``, the configuration file of the published program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of one key."""

    key: str = ""
    """The key of rlcore; empty if something else decides."""
    why: str = ""
    """What decides instead, or why other values are refused."""
    only: tuple[Any, ...] = ()
    """The accepted values; empty accepts all."""
    values: tuple[Any, ...] = ()
    """What each of the accepted values becomes; empty if they stay the same."""
    phases: tuple[str, ...] = ("teacher", "student", "adversarial")
    """The phases that the key is for."""
    toy: bool = True
    """Whether the key is also one of the toy environment."""


_ROBOT = "the bundled robot has two 6-DOF arms with grippers, built from primitives"
_SIZES = "the sizes of actions and state are those of the environment"
_PICTURES = "model.builder.cameras decides what is recorded"
_RANDOM = "environment.domain_randomization"
_LOOKS = f"{_RANDOM} decides"

RULES: Mapping[str, Rule] = {
    "logging.console_level": Rule("trainer.console_level"),
    "logging.file_level": Rule("trainer.file_level"),
    "model.config_file": Rule(why="the networks are those of [model.builder]"),
    "model.lora": Rule(why="the networks are small and trained completely"),
    "environment.embodiment": Rule(why=_ROBOT),
    "environment.single_arm": Rule(why=_ROBOT),
    "environment.scene_reset_interval": Rule(why="every reset makes the scene anew"),
    "environment.randomize_robot_init": Rule(
        "environment.random_home", "it is a switch", only=(False, True), values=(0.0, 0.1), toy=False
    ),
    "environment.need_planner": Rule(why="no control mode needs a planner", only=(False,)),
    "environment.need_topp": Rule(why="environment.timing=topp needs control=qpos or ee", only=(False,)),
    "environment.task_name": Rule(why="episodes of a phase have no goal", only=("random_exploration",)),
    "environment.control_mode": Rule(
        "environment.control", "others are not supported", ("delta_qpos", "delta_ee", "qpos", "ee"), toy=False
    ),
    "environment.delta_qpos_scale": Rule("environment.scales.joints", toy=False),
    "environment.render_mode": Rule(
        "environment.render", "there are no others", only=("rasterize", "rt"), values=("auto", "rt"), toy=False
    ),
    "environment.num_objects": Rule(why="environment.domain_randomization.cluttered_table adds objects", only=(0,)),
    "environment.camera.head_camera_type": Rule(why="environment.cameras decides"),
    "environment.camera.wrist_camera_type": Rule(why="environment.cameras decides"),
    "environment.camera.collect_head_camera": Rule(why=_PICTURES),
    "environment.camera.collect_wrist_camera": Rule(why=_PICTURES),
    "environment.domain_randomization.random_appearance": Rule(why=_LOOKS, only=(False,)),
    "environment.domain_randomization.random_background": Rule(
        "environment.domain_randomization.random_background", toy=False
    ),
    f"{_RANDOM}.random_light": Rule(f"{_RANDOM}.random_light", toy=False),
    "environment.domain_randomization.cluttered_table": Rule(
        "environment.domain_randomization.cluttered_table", toy=False
    ),
    "environment.data_type.collect_rgb": Rule(why=_PICTURES, only=(True,)),
    "environment.data_type.collect_qpos": Rule(why="the state is always recorded", only=(True,)),
    "environment.data_type.collect_endpose": Rule(why="the state is always recorded"),
    "environment.data_type.collect_depth": Rule(why="there is no depth", only=(False,)),
    "training.action_dim": Rule(why=_SIZES),
    "training.state_dim": Rule(why=_SIZES),
    "training.n_pred_img_steps": Rule(why="the next frame is predicted", only=(1,)),
    "training.weight_decay": Rule("trainer.weight_decay"),
    "training.max_grad_norm": Rule("trainer.max_gradient_norm"),
    "training.scheduler.type": Rule("trainer.schedule", "others are not supported", ("cosine", "linear", "constant")),
    "training.scheduler.T_max": Rule(why="the schedule ends with the last episode"),
    "training.scheduler.eta_min": Rule("trainer.final_learning_rate"),
    "training.num_epochs": Rule(why="trainer.episodes decides the length"),
    "training.num_episodes": Rule("trainer.episodes"),
    "training.mini_batch_size": Rule(why="all episodes of a round are in each update of the explorer"),
    "training.log_every": Rule("trainer.log_every"),
    "training.save_every": Rule("checkpoint.every"),
    "training.sequential_training": Rule(why="episodes are always trained in order", only=(True,)),
    "training.bptt_length": Rule("trainer.bptt_length"),
    "training.memory_backprop": Rule("trainer.memory_backprop"),
    "training.action_scale": Rule("trainer.action_scale", phases=("teacher",)),
    "training.action_bounds": Rule(why="the limits of actions are those of the environment"),
    "training.video_save_every": Rule("trainer.video_every"),
    "training.sample_save_every": Rule("trainer.sample_every"),
    "teacher.exploration_type": Rule(why="phase 1 acts randomly", only=("random",)),
    "teacher.train_world_model": Rule(why="phase 1 trains the world model", only=(True,)),
    "teacher.train_action_head": Rule(why="phase 1 has no explorer", only=(False,)),
    "teacher.freeze_vision_encoder": Rule(why="encoders are part of the small networks and trained"),
    "student.exploration_type": Rule(why="phase 2 acts with its policy", only=("policy",)),
    "student.train_world_model": Rule("trainer.train_world_model", phases=("student",)),
    "student.train_action_head": Rule(why="phase 2 trains the explorer", only=(True,)),
    "student.freeze_vision_encoder": Rule(why="encoders are part of the small networks and trained"),
    "student.ppo.clip_epsilon": Rule("algorithm.loss", phases=("student",)),
    "student.ppo.entropy_coef": Rule("trainer.entropy_weight", phases=("student",)),
    "student.ppo.value_loss_coef": Rule("trainer.value_weight", phases=("student",)),
    "student.ppo.gamma": Rule("algorithm.advantage.gamma", phases=("student",)),
    "student.ppo.gae_lambda": Rule("algorithm.advantage.gae_lambda", phases=("student",)),
    "student.ppo.normalize_advantages": Rule("algorithm.advantage.whiten", phases=("student",)),
    "student.ppo.clip_value_loss": Rule(
        "trainer.clip_value", "it is a switch", only=(False, True), values=(None, 0.2), phases=("student",)
    ),
    "student.ppo.max_grad_norm": Rule("trainer.max_gradient_norm", phases=("student",)),
    "adversarial.wm_updates_per_iter": Rule("trainer.passes", phases=("adversarial",)),
    "adversarial.explorer_updates_per_iter": Rule("trainer.explorer_updates", phases=("adversarial",)),
    "adversarial.warmup_steps": Rule("trainer.warmup_steps", phases=("adversarial",)),
    "adversarial.buffer_size": Rule("trainer.buffer_steps", phases=("adversarial",)),
    "adversarial.entropy_weight": Rule("trainer.entropy_weight", phases=("adversarial",)),
    "adversarial.wm_lr": Rule("trainer.learning_rate", phases=("adversarial",)),
    "adversarial.explorer_lr": Rule("trainer.explorer_learning_rate", phases=("adversarial",)),
    "adversarial.explorer": Rule(why="the sizes of the networks are those of [model.builder]"),
    "device": Rule("model.device"),
}
"""Keys that are translated one by one."""

SPECIAL = frozenset(
    {"training.learning_rate", "training.batch_size", "training.gradient_accumulation_steps", "debug"}
    | {"training.steps_per_episode", "logging.enable_file_logging"}
    | {f"{phase}.output_dir" for phase in ("teacher", "student", "adversarial")}
    | {f"student.rewards.{term}_weight" for term in ("memory_divergence", "wm_uncertainty", "task_success")}
    | {"adversarial.adversarial_weight", "adversarial.total_iterations"}
)
"""Keys whose meaning depends on the phase or on other keys."""

DEFAULTS: Mapping[str, Any] = {
    "training.learning_rate": 1e-4,
    "training.log_every": 10,
    "adversarial.wm_lr": 1e-4,
    "adversarial.explorer_lr": 3e-4,
}
"""The published defaults that differ from those of the recipes."""

WEIGHTS: Mapping[str, float] = {
    "memory_divergence": 0.5,
    "wm_uncertainty": 0.5,
    "wm_error": 1.0,
    "action_cost": 0.0,
    "task_success": 1.0,
}
"""The reward terms of phase 2, as in its recipe."""

OPTIONS = {
    "num_episodes": "training.num_episodes",
    "steps_per_episode": "training.steps_per_episode",
    "learning_rate": "training.learning_rate",
    "batch_size": "training.batch_size",
    "gradient_accumulation_steps": "training.gradient_accumulation_steps",
    "save_every": "training.save_every",
    "log_every": "training.log_every",
    "memory_divergence_weight": "student.rewards.memory_divergence_weight",
    "wm_uncertainty_weight": "student.rewards.wm_uncertainty_weight",
    "total_iterations": "adversarial.total_iterations",
    "device": "device",
    "debug": "debug",
}
"""Options that set a key of the file."""
