"""Ids to specs to imported targets, and what is said when that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore.discovery import Plugin, State
from rlcore.errors import NotInstalledError, PluginError, UserError
from rlcore.loading import load_attribute, pip_line, resource
from rlcore.plugins import Offer, Plugins
from rlcore.registry import KINDS, Registry
from rlcore.specs import AlgorithmSpec, EnvironmentSpec, RewardSpec, Spec, TrackerSpec


class OfferedPlugins(Plugins):
    """Plugins whose register hooks give what the test says."""

    def __init__(self, **offered: list[tuple[str, Spec]]) -> None:
        super().__init__()
        self._plugins = {}
        for hook, pairs in offered.items():
            for distribution, spec in pairs:
                plugin = Plugin(
                    name=distribution, distribution=distribution, version="1.2", module="none", state=State.DISABLED
                )
                self._offers.setdefault(hook, []).append(Offer(spec=spec, plugin=plugin))


def registry_of(*rewards: tuple[str, Spec]) -> Registry:
    return Registry(OfferedPlugins(rlcore_rewards=list(rewards)))


def test_every_kind_can_be_listed() -> None:
    registry = Registry()
    for kind in KINDS:
        assert all(isinstance(spec, KINDS[kind].spec) for spec in registry.specs(kind))
    assert {"console", "jsonl", "tensorboard", "wandb", "trackio"} <= {spec.id for spec in registry.specs("tracker")}


def test_a_spec_knows_its_distribution_and_version() -> None:
    offer = Registry().offer("tracker", "console")
    assert offer is not None
    assert isinstance(offer.spec, TrackerSpec)
    assert offer.plugin.distribution == "rlcore-core"
    assert offer.plugin.version


def test_an_unknown_id_names_the_nearest_and_all_that_is_there() -> None:
    registry = registry_of(("a", RewardSpec(id="exact", target="a:b")), ("a", RewardSpec(id="close", target="a:b")))
    with pytest.raises(PluginError) as caught:
        registry.spec("reward", "exakt")
    assert str(caught.value).splitlines() == [
        "there is no reward 'exakt'",
        "  found  there are close, exact",
        "  fix    did you mean 'exact'?",
    ]


def test_a_kind_that_nobody_offers_and_a_file_without_a_name_are_told() -> None:
    registry = registry_of()
    registry.plugins._offers["rlcore_rewards"] = []
    with pytest.raises(PluginError) as caught:
        registry.spec("reward", "exact")
    assert str(caught.value).splitlines() == [
        "there is no reward 'exact'",
        "  found  no installed plugin offers one",
        "  fix    rlcore plugins list --check",
    ]
    with pytest.raises(PluginError) as caught:
        registry.spec("reward", "mine.py")
    assert str(caught.value).splitlines() == [
        "the reward 'mine.py' is a file",
        "  fix    mine.py:NAME, with the name of what the file defines",
    ]


def test_an_id_that_one_plugin_offers_twice_is_told_once() -> None:
    spec = RewardSpec(id="exact", target="math:sqrt")
    with pytest.raises(PluginError) as caught:
        registry_of(("real-rl", spec), ("real-rl", spec)).spec("reward", "exact")
    assert caught.value.mend == "leave one out: RLCORE_DISABLE_PLUGINS=real-rl"


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
def test_a_target_of_the_wrong_kind_is_told_what_it_is(kind: str, target: str, found: str) -> None:
    with pytest.raises(PluginError) as caught:
        Registry().load(kind, target)
    assert caught.value.found == found
    assert caught.value.message.startswith(f"{kind} {target!r} must be a ")
    assert caught.value.mend


def test_the_project_own_plugins_are_named_with_their_pip_line_and_others_are_not_guessed() -> None:
    registry = registry_of(("a", RewardSpec(id="exact", target="a:b")))
    with pytest.raises(PluginError, match="pip install rl-plugin-string-equal"):
        registry.spec("reward", "math-numeric-equal")
    with pytest.raises(PluginError) as caught:
        registry.spec("reward", "somebody-elses")
    assert "pip install" not in str(caught.value)


def test_an_unknown_id_names_plugins_that_could_not_be_loaded() -> None:
    plugins = OfferedPlugins()
    broken = Plugin(
        name="acme",
        distribution="acme-rl",
        version="1",
        module="acme",
        state=State.BROKEN,
        problem="ImportError: no",
        fix="mend it",
    )
    plugins._plugins["acme-rl", "acme"] = broken
    plugins._offers["rlcore_environments"] = []
    registry = Registry(plugins)
    with pytest.raises(PluginError, match=r"acme \(acme-rl 1\) is broken: ImportError: no; mend it"):
        registry.spec("environment", "acme-world")
    with pytest.raises(PluginError, match="the plugin 'acme' is broken"):
        registry.plugin("acme-rl")
    with pytest.raises(PluginError, match="did you mean 'acme'"):
        registry.plugin("acmee")


def test_a_kind_of_an_absent_package_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "rlcore-rollout")
    with pytest.raises(PluginError) as caught:
        Registry().spec("engine", "torch")
    assert "rlcore-rollout" in str(caught.value)


def test_an_id_offered_twice_is_an_error_only_when_it_is_asked_for() -> None:
    registry = registry_of(
        ("fork-rl", RewardSpec(id="exact", target="math:sqrt")),
        ("real-rl", RewardSpec(id="exact", target="math:sqrt")),
        ("real-rl", RewardSpec(id="root", target="math:sqrt")),
    )
    assert registry.load("reward", "root")(4) == 2
    assert len(registry.specs("reward")) == 3
    with pytest.raises(PluginError) as caught:
        registry.load("reward", "exact")
    assert "fork-rl 1.2 and real-rl 1.2" in str(caught.value)


def test_another_version_of_the_contract_is_refused_and_says_who_is_behind() -> None:
    registry = registry_of(
        ("new-rl", RewardSpec(id="new", target="math:sqrt", contract=99)),
        ("old-rl", RewardSpec(id="old", target="math:sqrt", contract=0)),
    )
    with pytest.raises(PluginError, match="version 99; this rlcore speaks version 1") as caught:
        registry.spec("reward", "new")
    assert caught.value.mend == "pip install --upgrade rlcore-core"
    with pytest.raises(PluginError) as caught:
        registry.load("reward", "old")
    assert caught.value.mend == "pip install --upgrade old-rl"


def test_advantages_and_losses_share_a_hook_and_not_their_ids() -> None:
    offered = [
        ("a", AlgorithmSpec(id="same", part="advantage", target="math:sin")),
        ("a", AlgorithmSpec(id="same", part="loss", target="math:cos")),
    ]
    registry = Registry(OfferedPlugins(rlcore_algorithms=list(offered)))
    assert registry.load("advantage", "same")(0.0) == 0.0
    assert registry.load("loss", "same")(0.0) == 1.0


def test_an_import_path_stands_wherever_an_id_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = registry_of()
    assert registry.load("reward", "math:sqrt")(9) == 3
    (tmp_path / "mine.py").write_text(
        "class World:\n    class Config: ...\n    reset = step = close = print\n    blocking = True\n", encoding="utf-8"
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


def test_a_missing_library_names_the_module_and_the_pip_line() -> None:
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


def test_a_target_that_is_not_there_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(PluginError, match="did you mean 'sqrt'"):
        load_attribute("math:sqrtt")
    with pytest.raises(PluginError, match=r"no module 'json\.missing'"):
        load_attribute("json.missing:x")
    for text in ("math", ":sqrt", "math:"):
        with pytest.raises(PluginError, match="must be written"):
            load_attribute(text)


def test_a_file_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    with pytest.raises(PluginError, match="there is no file"):
        load_attribute(f"{file}:x")
    file.write_text("x = 1\ny = 1 / 0\n", encoding="utf-8")
    with pytest.raises(PluginError, match="ZeroDivisionError") as caught:
        load_attribute(f"{file}:x")
    assert f"{file}:2" in str(caught.value)
    file.write_text("x = (\n", encoding="utf-8")
    with pytest.raises(PluginError, match="SyntaxError"):
        load_attribute(f"{file}:x")


def test_files_inside_packages_are_found_or_said_to_be_missing() -> None:
    assert resource("rlcore:py.typed").is_file()
    for target in ("rlcore:nothing.toml", "no_such_package:x.toml", "rlcore"):
        with pytest.raises(UserError):
            resource(target)


def test_pip_lines_survive_a_shell() -> None:
    assert pip_line(["plain", "a[b]", "c>=1,<2"]) == "pip install plain 'a[b]' 'c>=1,<2'"
