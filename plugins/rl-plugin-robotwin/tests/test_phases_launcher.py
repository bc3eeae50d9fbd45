"""The published launcher: its arguments, and every key of its configuration file."""

from __future__ import annotations

import shlex
import tomllib

import pytest
from rl_plugin_robotwin.published.translation import translated
from rlcore.cli import main

pytest.importorskip("rl_plugin_world_model", reason="the extra train is not installed")

PUBLISHED = """
logging: {console_level: WARNING, file_level: CRITICAL, enable_file_logging: true}
model:
  config_file: /somewhere/model.yaml
  lora: {r: 8, lora_alpha: 32, target_modules: [q_proj, v_proj], lora_dropout: 0.1}
environment:
  embodiment: [franka-panda]
  single_arm: true
  scene_reset_interval: 50
  randomize_robot_init: false
  need_planner: false
  need_topp: false
  task_name: random_exploration
  control_mode: delta_qpos
  delta_qpos_scale: 0.05
  render_mode: rasterize
  num_objects: 0
  camera: {head_camera_type: D435, wrist_camera_type: D435, collect_head_camera: true, collect_wrist_camera: true}
  domain_randomization:
    {random_appearance: false, random_background: true, random_light: true, cluttered_table: true}
  data_type: {collect_rgb: true, collect_qpos: true, collect_endpose: true, collect_depth: false}
training:
  action_dim: 32
  state_dim: 32
  n_pred_img_steps: 1
  learning_rate: 1.0e-4
  weight_decay: 1.0e-4
  gradient_accumulation_steps: 4
  max_grad_norm: 0.5
  scheduler: {type: cosine, T_max: 10000, eta_min: 1.0e-6}
  num_epochs: 100
  num_episodes: 10000
  steps_per_episode: 40
  batch_size: 4
  mini_batch_size: 2
  log_every: 5
  save_every: 200
  sequential_training: true
  bptt_length: 7
  memory_backprop: true
  action_scale: 0.5
  action_bounds: {min: -1, max: 1}
  video_save_every: 3
  sample_save_every: 4
teacher:
  output_dir: ./outputs/mine
  exploration_type: random
  train_world_model: true
  train_action_head: false
  freeze_vision_encoder: true
student:
  output_dir: ./outputs/student_rl
  exploration_type: policy
  train_world_model: false
  train_action_head: true
  freeze_vision_encoder: true
  rewards: {memory_divergence_weight: 0.25, wm_uncertainty_weight: 0.5, task_success_weight: 1.0}
  ppo:
    {clip_epsilon: 0.1, entropy_coef: 0.02, value_loss_coef: 0.4, gamma: 0.98, gae_lambda: 0.9,
     normalize_advantages: true, clip_value_loss: true, max_grad_norm: 1.0}
adversarial:
  output_dir: ./outputs/adversarial_rl
  total_iterations: 700
  wm_updates_per_iter: 5
  explorer_updates_per_iter: 2
  warmup_steps: 900
  buffer_size: 100000
  adversarial_weight: 0.5
  entropy_weight: 0.03
  wm_lr: 1.0e-4
  explorer_lr: 3.0e-4
  explorer: {hidden_dim: 256, image_encoder_dim: 512}
device: cpu
debug: false
"""
LATER = """
logging: {console_level: INFO, file_level: DEBUG, enable_file_logging: false}
environment: {randomize_robot_init: true, render_mode: rt, scene_reset_interval: 1}
training: {learning_rate: 1e-5, weight_decay: 1.0e-5, max_grad_norm: 0.5, batch_size: 1, action_scale: 0.3}
student: {ppo: {clip_value_loss: false}}
"""


@pytest.fixture
def teacher(tmp_path, monkeypatch):
    """Work in a folder with something that looks like the checkpoint of the documented commands."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "outputs/old/checkpoint-500"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"")


@pytest.fixture
def rlcore(monkeypatch):
    """Run a command line."""

    def of(line: str) -> int:
        monkeypatch.setattr("sys.argv", shlex.split(line))
        return main()

    return of


@pytest.fixture
def dry(capsys, rlcore):
    """Return the configuration that a command would run with."""

    def of(line: str) -> dict:
        status = rlcore(f"{line} --dry-run")
        shown = capsys.readouterr()
        assert status == 0, shown.err
        return tomllib.loads(shown.out)

    return of


def test_the_documented_commands_become_runs(teacher, dry):
    first = dry("rlcore robotwin train teacher 4 2 --num_episodes 500")
    assert (first["trainer"]["id"], first["trainer"]["episodes"], first["trainer"]["num_envs"]) == (
        "world-model-teacher",
        500,
        2,
    )
    assert first["strategy"] == first["strategy"] | {"id": "ddp", "processes": 4}
    assert (first["runs"], first["name"]) == ("outputs", "teacher_rl")
    assert dry("rlcore robotwin train teacher")["strategy"]["id"] == "single"
    path = "./outputs/old/checkpoint-500"
    second = dry(f"rlcore robotwin train student 4 1 --teacher_path {path}")
    third = dry(f"rlcore robotwin train adversarial 4 1 --teacher_checkpoint {path}")
    assert second["trainer"]["teacher"] == third["trainer"]["teacher"] == path


def test_the_published_defaults_apply(teacher, dry):
    path = "--teacher_path outputs/old/checkpoint-500"
    found = dry("rlcore robotwin train teacher")
    expected = {"episodes": 100, "steps_per_episode": 50, "batch_size": 8, "learning_rate": 1e-4, "log_every": 10}
    assert found["trainer"] == found["trainer"] | expected | {"console_level": "INFO", "file_level": "DEBUG"}
    assert found["checkpoint"]["every"] == 50
    assert dry(f"rlcore robotwin train student {path}")["trainer"]["explorer_learning_rate"] == 1e-4
    found = dry(f"rlcore robotwin train adversarial {path} trainer.learning_rate=0.5")["trainer"]
    assert (found["learning_rate"], found["explorer_learning_rate"]) == (0.5, 3e-4)


def test_the_later_state_of_the_file_is_read(teacher, dry, tmp_path):
    (tmp_path / "rl_config.yaml").write_text(LATER)
    found = dry("rlcore robotwin train teacher --rl_config rl_config.yaml")
    assert (found["environment"]["random_home"], found["environment"]["render"]) == (0.1, "rt")
    expected = {"file_level": "CRITICAL", "console_level": "INFO", "learning_rate": 1e-5, "batch_size": 1}
    assert found["trainer"] == found["trainer"] | expected
    path = "--teacher_path outputs/old/checkpoint-500"
    found = dry(f"rlcore robotwin train student --rl_config rl_config.yaml {path}")
    assert found["trainer"]["clip_value"] == "null"
    found = dry("rlcore robotwin train teacher --rl_config rl_config.yaml environment.id=flat-arm")
    assert found["environment"]["id"] == "flat-arm"


@pytest.mark.parametrize(
    "bad",
    [
        "training.learning_rate: fast",
        "training.steps_per_episode: 2.5",
        "training.batch_size: [8]",
        "training.gradient_accumulation_steps: many",
        "logging.enable_file_logging: perhaps",
        "environment.render_mode: photo",
        "environment.randomize_robot_init: 7",
        "student.ppo.clip_value_loss: 0.2",
        "student.rewards.task_success_weight: big",
        "debug: 5",
        "teacher.output_dir: [1]",
    ],
)
def test_values_of_another_kind_are_refused_by_key(teacher, tmp_path, capsys, rlcore, bad):
    key, _, value = bad.partition(": ")
    *tables, name = key.split(".")
    text = f"{name}: {value}"
    for table in reversed(tables):
        text = f"{table}: {{{text}}}"
    (tmp_path / "bad.yaml").write_text(f"{text}\n")
    phase = "student" if key.startswith("student") else "teacher"
    path = "--teacher_path outputs/old/checkpoint-500" if phase == "student" else ""
    assert rlcore(f"rlcore robotwin train {phase} --rl_config bad.yaml {path} --dry-run") == 2
    told = capsys.readouterr().err
    assert f"{key}=" in told
    assert "bad.yaml" in told


def test_a_resumed_run_keeps_its_settings_and_gets_given_processes():
    found = translated("teacher", {"resume": "runs/x", "num_gpus": 1, "num_envs": 4})
    assert found.resume == "runs/x"
    assert found.values == {"trainer.num_envs": 4, "strategy.id": "ddp", "strategy.processes": 1}
    assert translated("student", {"resume": "runs/x"}).values == {}


@pytest.mark.parametrize("toy", ["", " environment.id=flat-arm"])
@pytest.mark.parametrize("phase", ["teacher", "student", "adversarial"])
def test_episodes_have_the_documented_number_of_steps(teacher, dry, phase, toy):
    path = "" if phase == "teacher" else " --teacher_path outputs/old/checkpoint-500"
    for option, steps in (("", 50), (" --steps_per_episode 80", 80)):
        found = dry(f"rlcore robotwin train {phase}{path}{option}{toy}")
        assert found["trainer"]["steps_per_episode"] == found["environment"]["max_steps"] == steps
        assert not found["environment"].get("end_on_success", False)


def test_translations_are_printed_once_by_several_processes(rlcore, capsys, monkeypatch):
    line = "rlcore robotwin train teacher 2 1 --num_episodes 7 --dry-run"
    assert rlcore(line) == 0
    assert "trainer.episodes=7" in capsys.readouterr().err
    monkeypatch.setenv("RLCORE_LAUNCHER", "1")
    assert rlcore(line) == 0
    assert "trainer.episodes=7" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("alias", "phase"),
    [("phase1", "teacher"), ("explorer", "student"), ("adv", "adversarial")],
)
def test_every_alias_is_a_phase_and_a_recipe(teacher, dry, alias, phase):
    option = "" if phase == "teacher" else "--teacher_path outputs/old/checkpoint-500"
    assert dry(f"rlcore robotwin train {alias} {option}")["trainer"]["id"] == f"world-model-{phase}"
    override = "" if phase == "teacher" else "trainer.teacher=outputs/old/checkpoint-500"
    assert dry(f"rlcore run -v -p robotwin -r {alias} {override}")["trainer"]["id"] == f"world-model-{phase}"


def test_every_key_of_the_file_is_read(teacher, dry, tmp_path):
    (tmp_path / "rl_config.yaml").write_text(PUBLISHED)
    found = dry("rlcore robotwin train teacher --rl_config rl_config.yaml --num_episodes 60")
    trainer, environment = found["trainer"], found["environment"]
    expected = {"episodes": 60, "steps_per_episode": 40, "batch_size": 16, "learning_rate": 1e-4, "bptt_length": 7}
    expected |= {"console_level": "WARNING", "file_level": "CRITICAL", "log_every": 5, "action_scale": 0.5}
    expected |= {"max_gradient_norm": 0.5, "video_every": 3, "sample_every": 4, "final_learning_rate": 1e-6}
    assert trainer == trainer | expected
    assert environment["control"] == "delta_qpos"
    assert environment["scales"]["joints"] == 0.05
    assert environment["domain_randomization"]["random_light"]
    assert found["checkpoint"]["every"] == 200
    assert (found["name"], found["model"]["device"]) == ("mine", "cpu")
    path = "--teacher_path outputs/old/checkpoint-500"
    found = dry(f"rlcore robotwin train student --rl_config rl_config.yaml {path}")
    assert {"id": "memory_divergence", "weight": 0.25} in found["trainer"]["terms"]
    assert found["algorithm"]["advantage"]["gamma"] == 0.98
    assert found["algorithm"]["loss"]["clip_low"] == 0.1
    assert found["trainer"]["explorer_learning_rate"] == 1e-4
    assert found["trainer"]["entropy_weight"] == 0.02
    found = dry(f"rlcore robotwin train adversarial 1 3 --rl_config rl_config.yaml {path}")
    expected = {"episodes": 2100, "passes": 5, "explorer_updates": 2, "warmup_steps": 900, "entropy_weight": 0.03}
    assert found["trainer"] == found["trainer"] | expected | {"explorer_learning_rate": 3e-4, "buffer_steps": 100000}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("rlcore robotwin train phase4", "unknown phase"),
        ("rlcore robotwin train teacher --num_episode 5", "num_episode"),
        ("rlcore robotwin train teacher 1 2 3", "NUM_GPUS"),
        ("rlcore robotwin train teacher --num_episodes 0", "trainer.episodes"),
        ("rlcore robotwin train teacher --learning_rate 0", "trainer.learning_rate"),
        ("rlcore robotwin train teacher --num_envs 0", "trainer.num_envs"),
        ("rlcore robotwin train teacher 1 2 --num_envs 3", "twice"),
        ("rlcore robotwin train teacher --mixed_precision fp16", "mixed_precision"),
        ("rlcore robotwin train teacher --no_sequential_training", "order"),
        ("rlcore robotwin train teacher --teacher_path x", "phase 1 makes the teacher"),
        ("rlcore robotwin train student", "--teacher_path"),
        ("rlcore robotwin train student --teacher_path nowhere", "no such folder"),
        ("rlcore robotwin train student --teacher_path a --teacher_checkpoint b", "different folders"),
        ("rlcore robotwin train teacher --rl_config bad.yaml", "training.num_episode"),
        ("rlcore robotwin train teacher --output_dir outputs/old", "exists"),
    ],
)
def test_what_is_not_supported_is_refused_with_a_reason(teacher, tmp_path, capsys, rlcore, line, says):
    (tmp_path / "bad.yaml").write_text("training: {num_episode: 3}\nenvironment: {need_planner: true}\n")
    assert rlcore(line) == 2
    assert says in capsys.readouterr().err


def test_an_argument_with_spaces_is_one_argument(dry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = dry('rlcore robotwin train teacher --output_dir "my outputs/first run" --num_episodes 5')
    assert (found["runs"], found["name"], found["trainer"]["episodes"]) == ("my outputs", "first run", 5)


def test_no_default_is_a_place_of_a_machine(dry, tmp_path, monkeypatch):
    def texts(value):
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [value] if isinstance(value, str) else [text for part in parts for text in texts(part)]

    monkeypatch.chdir(tmp_path)
    found = texts(dry("rlcore robotwin train teacher"))
    assert len(found) > 10
    assert not [text for text in found if text.startswith(("/", "~"))]


def test_keys_that_contradict_each_other_are_named_where_they_were_given(teacher, rlcore, capsys):
    assert rlcore("rlcore run -p robotwin -r teacher --dry-run environment.timing=topp") == 2
    assert "from command line: environment.timing=topp" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_of_another_phase_is_not_resumed(rlcore, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = "trainer.episodes=2 trainer.steps_per_episode=2 model.builder.channels=8 model.builder.memory=12"
    assert rlcore(f"rlcore run -p robotwin -r toy-teacher runs=. name=t checkpoint.every=2 {short}") == 0
    for folder in ("t", "t/checkpoint-2"):
        assert rlcore(f"rlcore robotwin train student --resume {folder}") == 2
        told = capsys.readouterr().err
        assert "trainer.id=world-model-teacher" in told
        assert folder in told
