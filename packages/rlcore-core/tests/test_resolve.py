"""Resolution of layers: component tables are validated by their own models, and problems reported together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rlcore.cli.layering import gather
from rlcore.config.layers import file_layer
from rlcore.config.messages import ProblemsError, nearest_key
from rlcore.config.requirements import unmet
from rlcore.config.resolve import resolve
from rlcore.config.resolved import Resolved
from rlcore.errors import ConfigError, NotInstalledError, UserError
from rlcore.plugins.loading import pip_line
from rlcore.plugins.registry import Registry


def resolved(*overrides: str, **options: Any) -> Resolved:
    registry = Registry()
    layered = gather(registry, plugin=options.get("plugin", "toy"), recipe=options.get("recipe"), overrides=overrides)
    return resolve(layered.layers, registry, recipe=layered.recipe, purpose=options.get("purpose", "run"))


def test_each_component_validates_its_own_table(toy: Any) -> None:
    found = resolved("data.count=9", "rollout.torch.slots=2", "algorithm.kl.coefficient=0.5", "warmup.steps=4")
    assert found.config.environment.id == "toy"
    assert found.options["environment"].max_turns == 2  # type: ignore[union-attr]
    assert found.options["data"].count == 9  # type: ignore[union-attr]
    assert found.options["engine"].slots == 2  # type: ignore[union-attr]
    assert found.options["algorithm"].kl == {"coefficient": 0.5}  # type: ignore[union-attr]
    assert found.options["warmup"].steps == 4  # type: ignore[union-attr]
    assert found.options["trainer"].learning_rate == 3e-4  # type: ignore[union-attr]
    assert found.options["strategy"] is None
    assert found.reward_options[0].strict is True  # type: ignore[union-attr]
    assert found.reward_options[1] is None


@pytest.mark.parametrize("table", ["environment", "environment.0"])
def test_the_interpreter_of_an_environment_is_written_and_read_again(toy: Any, table: str) -> None:
    found = resolved(f"{table}.python={sys.executable}", f'{table}.variables.COLOUR="red"', "data.count=9")
    again = resolve([file_layer(Path("config.toml"), text=found.text())], Registry())
    (environment,) = again.environments
    assert (environment.python, environment.variables) == (sys.executable, {"COLOUR": "red"})
    assert environment.data.count == 9  # type: ignore[union-attr]


def test_an_id_of_null_selects_the_dataset_of_the_environment(toy: Any) -> None:
    (environment,) = resolved("data.id=null", "data.count=9").environments
    assert environment.data_id == "toy"
    assert environment.data.count == 9  # type: ignore[union-attr]


def test_all_problems_are_reported_with_origin_suggestion_and_doc(toy: Any) -> None:
    (toy.work / "my.toml").write_text("[trainer]\nlearning_rat = 1\n[warmup]\nsteps = 'many'\n")
    registry = Registry()
    overrides = ["group_size=4", "rollout.group_size=eight", "environment.max_turn=3", "reward.length.weigth=1", "bo=1"]
    layered = gather(registry, plugin="toy", files=["my.toml"], overrides=overrides)
    with pytest.raises(ConfigError) as raised:
        resolve(layered.layers, registry)
    text = str(raised.value)
    assert text.startswith("7 problems in the run's configuration")
    for block in (
        "unknown key  trainer.learning_rat\n      from my.toml:2\n      did you mean trainer.learning_rate ?",
        "bad value    warmup.steps = 'many'\n      from my.toml:4\n      needs an integer\n"
        "      Supervised steps before.",
        "unknown key  group_size\n      from command line: group_size=4\n      did you mean rollout.group_size ?",
        "bad value    rollout.group_size = 'eight'\n      from command line: rollout.group_size=eight\n",
        "      Trajectories per task, G.",
        "unknown key  environment.max_turn\n      from command line: environment.max_turn=3\n"
        "      did you mean environment.max_turns ?",
        "unknown key  reward.1.weigth\n      from command line: reward.length.weigth=1\n"
        "      did you mean reward.1.weight ?",
        "unknown key  bo\n      from command line: bo=1\n      valid keys of the top level: algorithm, ",
    ):
        assert block in text


@pytest.mark.parametrize(
    ("override", "kind", "path", "hint"),
    [
        ("trainer.lr=1", "unknown key", "trainer.lr", "trainer.learning_rate"),
        ("trainer.learning_rate=true", "bad value", "trainer.learning_rate", "number"),
        ("rollout.group_size=false", "bad value", "rollout.group_size", "integer"),
        ("reward.length.weight=true", "bad value", "reward.1.weight", "number"),
        ("trainer.advantage=x", "unknown key", "trainer.advantage", "algorithm.advantage"),
        ("reward.exact.strikt=1", "unknown key", "reward.0.strikt", "reward.0.strict"),
        ("reward.length.strict=1", "unknown key", "reward.1.strict", "reward.0.strict"),
        ("rollout.temp=1", "unknown key", "rollout.temp", "rollout.temperature"),
        ("rollout.stop=[1]", "bad value", "rollout.stop.0", "string"),
        ("checkpoint=4", "bad value", "checkpoint", "every, keep"),
        ("trackers.use=consol", "not found", "trackers.use", "'console'"),
        ('trackers.use=["consol"]', "not found", "trackers.use", "'console'"),
        ("rollout.slots=1", "unknown key", "rollout.slots", "rollout.torch.slots"),
        ("rollout.tortch.slots=1", "unknown key", "rollout.tortch", "rollout"),
        ("sampler.gpus=1", "unknown key", "sampler.gpus", "id"),
        ("trackers.wandbb.project=x", "unknown key", "trackers.wandbb", "trackers"),
        ("trackers.console.colour=x", "unknown key", "trackers.console.colour", "trackers.console"),
        ("trainer.id=nope", "not found", "trainer.id", "'nope'"),
        ("reward.0.id=exakt", "not found", "reward.0.id", "'exact'"),
        ("environment=toi", "not found", "environment.id", "'toy'"),
        ("data.id=toi", "not found", "data.id", "'toy'"),
        ("model=builtin:tini", "not found", "model.path", "'tini'"),
        ("model.builder.layer=1", "unknown key", "model.builder.layer", "model.builder.layers"),
        ("evaluation.tasks=0", "bad value", "evaluation.tasks", "1"),
        ("reward=[]", "bad value", "reward", "1 item"),
        ("model.path=null", "bad value", "model.path", "string"),
        ("trainer=5", "bad value", "trainer", ""),
        ("rollout.torch=5", "bad value", "rollout.torch", "'torch'"),
    ],
)
def test_problem_has_kind_path_origin_and_hint(toy: Any, override: str, kind: str, path: str, hint: str) -> None:
    with pytest.raises(ProblemsError) as raised:
        resolved(override)
    (problem,) = raised.value.problems
    assert (problem.kind, problem.path, problem.origin) == (kind, path, f"command line: {override}")
    assert hint in problem.reason


def test_missing_key_is_reported(toy: Any) -> None:
    toy.recipe("other", "summary = 'nothing'\n")
    with pytest.raises(ProblemsError) as raised:
        resolved(recipe="other")
    (problem,) = [problem for problem in raised.value.problems if problem.path == "model"]
    assert (problem.kind, problem.origin) == ("missing key", "no layer sets it")


def test_resolved_tree_resolves_to_itself(toy: Any) -> None:
    from rlcore.config.layers import values_layer

    first = resolved("rollout.group_size=3", "reward.exact.weight=0.5", "evaluation.tasks=7")
    second = resolve([values_layer(first.tree(), "again")], Registry())
    assert second.tree() == first.tree()
    assert second.config.rollout.group_size == 3


def test_defaults_and_explicit_values_have_different_origins(toy: Any) -> None:
    found = resolved("trainer.steps=9")
    assert found.origin(("trainer", "steps")) == "command line: trainer.steps=9"
    assert found.origin(("trainer", "learning_rate")) == "recipe toy/default:20"
    assert found.origin(("trainer", "tasks_per_step")) == "default"


def test_missing_requirements_are_one_error_with_a_pip_command(toy: Any) -> None:
    with pytest.raises(NotInstalledError) as raised:
        resolved('requires=["no-such-a", "rlcore-core>=0.0.1", "no-such-b>=2", "rlcore-core>=99"]', "reward.0.id=gone")
    assert raised.value.fix == pip_line(["no-such-a", "no-such-b>=2", "rlcore-core>=99"])


@pytest.mark.parametrize(("text", "met"), [("pydantic", True), ("pydantic>=2,<3", True), ("pydantic<2", False)])
def test_requirements_compare_versions(text: str, met: bool) -> None:
    assert (unmet(text) is None) == met


def test_evaluation_needs_no_trainer(toy: Any) -> None:
    overrides = ["trainer.id=gone", "strategy.id=gone"]
    with pytest.raises(ConfigError):
        resolved(*overrides)
    assert resolved(*overrides, purpose="evaluation").options["trainer"] is None


def test_recipes_are_found_by_plugin_id_and_file(toy: Any) -> None:
    registry = Registry()
    (toy.work / "mine.toml").write_text((toy.site / "toy_rl_recipes" / "default.toml").read_text())
    for arguments in ({"plugin": "toy", "recipe": "other"}, {"recipe": "toy/other"}, {"plugin": "toy-rl"}):
        assert gather(registry, **arguments).recipe.startswith("toy/")
    assert gather(registry, recipe="mine.toml").layers[0].origin(("model", "path")) == "mine.toml:4"
    for arguments in ({"plugin": "toi"}, {"plugin": "toy", "recipe": "othr"}, {"recipe": "other"}, {}):
        with pytest.raises(UserError):
            gather(registry, **arguments)


def test_nearest_key_prefers_siblings_then_equal_names() -> None:
    known = ["a.steps", "b.step", "b.c.width", "learning_rate"]
    assert nearest_key("a.stepz", known) == "a.steps"
    assert nearest_key("b.steps", known) == "b.step"
    assert nearest_key("width", known) == "b.c.width"
    assert nearest_key("lr", known) == "learning_rate"
    assert nearest_key("zzz", known) is None


def test_resolving_imports_nothing_heavy(toy: Any) -> None:
    code = (
        "import sys\nfrom rlcore.session.session import RunSession\nfrom rlcore.cli.layering import gather\n"
        "from rlcore.config.resolve import resolve\nfrom rlcore.plugins.registry import Registry\n"
        "r = Registry(); resolve(gather(r, plugin='toy').layers, r)\n"
        "heavy = {'torch', 'numpy', 'transformers', 'rich', 'wandb', 'tensorboard', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], env=toy.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_unknown_keys_are_rejected_for_models_that_ignore_them(toy: Any) -> None:
    source = (toy.site / "toy_rl.py").read_text()
    (toy.site / "toy_rl.py").write_text(source.replace("class DataConfig(Table)", "class DataConfig(BaseModel)"))
    with pytest.raises(ProblemsError) as raised:
        resolved("data.cuont=3")
    assert [(problem.kind, problem.path) for problem in raised.value.problems] == [("unknown key", "data.cuont")]


def test_path_types_are_strings(tmp_path: Path) -> None:
    from pydantic import BaseModel
    from rlcore.config.layers import override_layers
    from rlcore.config.tables import validate_options

    class Options(BaseModel):
        out: Path
        """File."""

    assert validate_options(Options, override_layers(["out=x/y"]), subject="options") == Options(out=Path("x/y"))
    with pytest.raises(ProblemsError) as raised:
        validate_options(Options, [], subject="options")
    assert [(problem.kind, problem.path) for problem in raised.value.problems] == [("missing key", "out")]
    with pytest.raises(ProblemsError) as raised:
        validate_options(None, override_layers(["out=x/y"]), subject="options")
    assert [(problem.kind, problem.path) for problem in raised.value.problems] == [("unknown key", "out")]
