"""Lookup of components: specs, imported targets and errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from rlcore.errors import NotInstalledError, PluginError, UserError, WriteError, did_you_mean
from rlcore.plugins.discovery import Plugin, State
from rlcore.plugins.installed import Offer, Plugins
from rlcore.plugins.loading import load_attribute, pip_line, resource
from rlcore.plugins.registry import KINDS, Registry, asked
from rlcore.specs import AlgorithmSpec, EnvironmentSpec, RecipeSpec, RewardSpec, Spec, TrackerSpec
from rlcore.types import Task, Trajectory


class OfferedPlugins(Plugins):
    """Plugins without installed distributions: register hooks return the given specs."""

    def __init__(self, *installed: Plugin, **offered: list[tuple[str, Spec]]) -> None:
        self.installed, self.offered = list(installed), offered

    def all(self) -> list[Plugin]:
        return self.installed

    def load(self) -> list[Plugin]:
        return self.installed

    def claimed_offer(self, kind: str, id: str, expected: type[Spec]) -> Offer | None:
        return None

    def offers(self, hook: str, expected: type[Spec] = Spec) -> list[Offer]:
        return [
            Offer(spec=spec, plugin=Plugin(name=name, distribution=name, version="1.2", module="none"))
            for name, spec in self.offered.get(hook, [])
        ]


def registry_of(*rewards: tuple[str, Spec]) -> Registry:
    return Registry(OfferedPlugins(rlcore_rewards=list(rewards)))


def test_every_kind_can_be_listed() -> None:
    registry = Registry()
    for kind in KINDS:
        assert all(isinstance(spec, KINDS[kind].spec) for spec in registry.specs(kind))
    assert {"console", "jsonl", "tensorboard", "wandb", "trackio"} <= {spec.id for spec in registry.specs("tracker")}


def test_offer_has_distribution_and_version() -> None:
    offer = Registry().offer("tracker", "console")
    assert offer is not None
    assert isinstance(offer.spec, TrackerSpec)
    assert offer.plugin.distribution == "rlcore-core"
    assert offer.plugin.version


def test_unknown_id_message() -> None:
    registry = registry_of(("a", RewardSpec(id="exact", target="a:b")), ("a", RewardSpec(id="close", target="a:b")))
    with pytest.raises(PluginError) as caught:
        registry.spec("reward", "exakt")
    assert str(caught.value).splitlines() == [
        "there is no reward 'exakt'",
        "  found  available: close, exact",
        "  fix    did you mean 'exact'?",
    ]


def test_unknown_id_of_a_kind_without_components() -> None:
    with pytest.raises(PluginError) as caught:
        registry_of().spec("reward", "exact")
    assert "'exact'" in caught.value.message
    assert caught.value.fix == "rlcore plugins list --check"


def test_file_without_an_attribute_is_rejected() -> None:
    with pytest.raises(PluginError) as caught:
        registry_of().spec("reward", "mine.py")
    assert "'mine.py'" in caught.value.message
    assert "mine.py:NAME" in str(caught.value.fix)


def test_id_registered_twice_by_one_plugin_names_it_once() -> None:
    spec = RewardSpec(id="exact", target="math:sqrt")
    with pytest.raises(PluginError) as caught:
        registry_of(("real-rl", spec), ("real-rl", spec)).spec("reward", "exact")
    assert str(caught.value.fix).count("RLCORE_DISABLE_PLUGINS=real-rl") == 1


@pytest.mark.parametrize(
    ("kind", "target", "found"),
    [
        ("environment", "math:sqrt", "the function sqrt"),
        ("environment", "builtins:int", "the class int has no reset, step or close"),
        ("dataset", "math:pi", "a value of type float"),
        ("tool", "builtins:int", "the class int"),
        ("reward", "math:pi", "a value of type float"),
        ("reward", "builtins:int", "the class int"),
    ],
)
def test_target_of_the_wrong_form_is_rejected(kind: str, target: str, found: str) -> None:
    with pytest.raises(PluginError) as caught:
        Registry().load(kind, target)
    assert caught.value.found == found
    assert f"{kind} {target!r}" in caught.value.message
    assert caught.value.fix


class Loud:
    """A reward that declares its bounds in the way of a file."""

    minimum = -1.0

    def __call__(self, trajectory: Trajectory, task: Task) -> float:
        return -1.0


def test_class_that_contradicts_its_spec_is_rejected() -> None:
    target = f"{__name__}:Loud"
    with pytest.raises(PluginError) as caught:
        registry_of(("a", RewardSpec(id="loud", target=target))).load("reward", "loud")
    assert caught.value.message == "reward 'loud' and its spec disagree about minimum"
    assert caught.value.found == f"-1.0 in {target}, and 0.0 in its spec"
    assert str(caught.value.fix).startswith("set minimum=-1.0 in its RewardSpec")
    assert registry_of(("a", RewardSpec(id="loud", target=target, minimum=-1.0))).load("reward", "loud") is Loud


def test_pip_command_is_suggested_only_for_known_plugins() -> None:
    registry = registry_of(("a", RewardSpec(id="exact", target="a:b")))
    with pytest.raises(PluginError) as caught:
        registry.spec("reward", "math-numeric-equal")
    assert caught.value.fix == pip_line(["rl-plugin-string-equal"])
    with pytest.raises(PluginError) as caught:
        registry.spec("reward", "third-party")
    assert "pip install" not in str(caught.value)


def test_unknown_id_reports_broken_plugins() -> None:
    broken = Plugin(
        name="acme",
        distribution="acme-rl",
        version="1",
        module="acme",
        state=State.BROKEN,
        problem="ImportError: no",
        fix="fix it",
    )
    registry = Registry(OfferedPlugins(broken))
    with pytest.raises(PluginError) as caught:
        registry.spec("environment", "acme-world")
    assert all(text in str(caught.value.fix) for text in ("acme-rl 1", "broken", "ImportError: no", "fix it"))
    with pytest.raises(PluginError) as caught:
        registry.plugin("acme-rl")
    assert (caught.value.found, caught.value.where, caught.value.fix) == ("ImportError: no", "acme-rl 1", "fix it")


def test_kind_of_a_missing_package_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "rlcore-rollout")
    with pytest.raises(PluginError) as caught:
        Registry().spec("engine", "torch")
    assert "rlcore-rollout" in str(caught.value.fix)


def test_duplicate_id_is_an_error_only_when_used() -> None:
    registry = registry_of(
        ("fork-rl", RewardSpec(id="exact", target="math:sqrt")),
        ("real-rl", RewardSpec(id="exact", target="math:sqrt")),
        ("real-rl", RewardSpec(id="root", target="math:sqrt")),
    )
    assert registry.load("reward", "root")(4) == 2
    assert len(registry.specs("reward")) == 3
    with pytest.raises(PluginError) as caught:
        registry.load("reward", "exact")
    assert caught.value.found == "fork-rl 1.2 and real-rl 1.2"


def test_unsupported_contract_version_names_the_package_to_upgrade() -> None:
    registry = registry_of(
        ("new-rl", RewardSpec(id="new", target="math:sqrt", contract=99)),
        ("old-rl", RewardSpec(id="old", target="math:sqrt", contract=0)),
    )
    with pytest.raises(PluginError) as caught:
        registry.spec("reward", "new")
    assert caught.value.where == "new-rl 1.2"
    assert caught.value.fix == "pip install --upgrade rlcore-core"
    with pytest.raises(PluginError) as caught:
        registry.load("reward", "old")
    assert caught.value.fix == "pip install --upgrade old-rl"


def test_advantages_and_losses_can_share_ids() -> None:
    offered = [
        ("a", AlgorithmSpec(id="same", part="advantage", target="math:sin")),
        ("a", AlgorithmSpec(id="same", part="loss", target="math:cos")),
    ]
    registry = Registry(OfferedPlugins(rlcore_algorithms=list(offered)))
    assert registry.load("advantage", "same")(0.0) == 0.0
    assert registry.load("loss", "same")(0.0) == 1.0


def test_import_path_is_accepted_as_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = registry_of()
    assert registry.load("reward", "math:sqrt")(9) == 3
    (tmp_path / "mine.py").write_text(
        "import pydantic\nclass World:\n    class Config(pydantic.BaseModel): ...\n"
        "    reset = step = close = print\n    blocking = True\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    world = registry.load("environment", "mine.py:World")
    assert world.__name__ == "World"
    assert registry.load("environment", str(tmp_path / "mine.py") + ":World") is world
    spec = registry.spec("environment", "mine.py:World")
    assert isinstance(spec, EnvironmentSpec)
    assert spec.blocking
    assert spec.max_concurrency is None
    assert registry.config_model("environment", "mine.py:World") is world.Config
    assert registry.spec("loss", "math:sqrt").part == "loss"  # type: ignore[attr-defined]


def test_missing_library_message() -> None:
    registry = registry_of(
        ("acme-rl", RewardSpec(id="judge", target="not_there_at_all:Judge", needs=("acme-rl[judge]", "other"))),
    )
    with pytest.raises(NotInstalledError) as caught:
        registry.load("reward", "judge")
    assert str(caught.value).splitlines() == [
        "reward 'judge' needs the module 'not_there_at_all'",
        "  found  it is not installed",
        "  from   acme-rl 1.2",
        "  fix    pip install 'acme-rl[judge]' other",
    ]


def test_missing_target_is_rejected() -> None:
    with pytest.raises(PluginError) as caught:
        load_attribute("math:sqrtt")
    assert caught.value.fix == "did you mean 'sqrt'?"
    with pytest.raises(PluginError) as caught:
        load_attribute("json.missing:x")
    assert "'json.missing'" in str(caught.value.found)
    for text in ("math", ":sqrt", "math:"):
        with pytest.raises(PluginError) as caught:
            load_attribute(text)
        assert caught.value.found == text


def test_failing_file_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    with pytest.raises(PluginError) as caught:
        load_attribute(f"{file}:x")
    assert str(file) in caught.value.message
    file.write_text("x = 1\ny = 1 / 0\n", encoding="utf-8")
    with pytest.raises(PluginError) as caught:
        load_attribute(f"{file}:x")
    assert (caught.value.where, caught.value.fix) == (f"{file}:2", f"edit {file}:2")
    assert "ZeroDivisionError" in str(caught.value.found)
    file.write_text("x = (\n", encoding="utf-8")
    with pytest.raises(PluginError) as caught:
        load_attribute(f"{file}:x")
    assert "SyntaxError" in str(caught.value.found)


def test_package_resources_are_found_or_rejected() -> None:
    assert resource("rlcore:py.typed").is_file()
    for target in ("rlcore:nothing.toml", "no_such_package:x.toml", "rlcore"):
        with pytest.raises(UserError):
            resource(target)


def test_pip_command_is_quoted_for_the_shell() -> None:
    assert pip_line(["plain", "a[b]", "c>=1,<2"]) == "pip install plain 'a[b]' 'c>=1,<2'"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("acme/defalt", "acme/default"),
        ("acne/default", "acme/default"),
        ("acme/banana", None),
        ("acme/two-stack", None),
        ("trainer.step", "trainer.steps"),
        ("trainer.banana", None),
        ("steps", None),
    ],
)
def test_similar_names_are_compared_without_their_common_folder(name, near):
    known = ["acme/default", "acme/stack-two", "trainer.steps", "trainer.optimiser"]
    assert did_you_mean(name, known) == (near and f"did you mean {near!r}?")


def test_an_unknown_recipe_lists_those_of_its_plugin():
    specs = [("a", RecipeSpec(id=id, target="a:b")) for id in ("acme/default", "acme/large", "other/default")]
    registry = Registry(OfferedPlugins(rlcore_recipes=specs))
    with pytest.raises(PluginError) as caught:
        registry.spec("recipe", "acme/banana")
    assert caught.value.found == "available: acme/default, acme/large"
    with pytest.raises(PluginError) as caught:
        registry.spec("recipe", "nobody/banana")
    assert "other/default" in str(caught.value.found)


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_a_component_on_a_full_disk_is_not_blamed(kind: type[Exception]) -> None:
    def build() -> None:
        raise kind(f"cannot serialize: {os.strerror(errno.ENOSPC)}")

    with pytest.raises(WriteError) as caught:
        asked("model 'tiny'", build)
    assert "tiny" in caught.value.message
    assert "disk space" in str(caught.value.fix)
