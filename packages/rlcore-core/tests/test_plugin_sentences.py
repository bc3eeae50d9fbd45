"""State, problem and fix of plugins that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rlcore.errors import PluginError
from rlcore.plugins import installed as plugins_module
from rlcore.plugins import loading as plugin_import
from rlcore.plugins.discovery import Plugin, State
from rlcore.plugins.installed import Plugins
from rlcore.plugins.registry import Registry

Install = Callable[..., None]

IMPORTS = "from rlcore import EngineSpec, RewardSpec, TrackerSpec, hookimpl, hookspec\n"
HOOK = IMPORTS + "@hookimpl\ndef rlcore_rewards():\n    {}\n"
UPGRADE = "pip install --upgrade acme-rl"


def checked(name: str = "acme") -> Plugin:
    """The plugin after it was imported and its hooks were called, as by ``rlcore plugins list --check``."""
    plugins = Plugins()
    plugins.load()
    plugins.offers("rlcore_rewards")
    (found,) = [plugin for plugin in plugins.all() if plugin.name == name]
    return found


def test_failing_hook_message(install: Install) -> None:
    install("acme-rl", HOOK.format("raise OSError('no disk')"), plugin="acme")
    plugin = checked()
    assert plugin.state is State.BROKEN
    assert plugin.problem == "rlcore_rewards failed: OSError: no disk (acme_rl_plugin.py:4)"
    assert plugin.fix == "pip install --upgrade acme-rl, or RLCORE_DISABLE_PLUGINS=acme"


@pytest.mark.parametrize(
    ("source", "cause", "fix"),
    [
        (None, "'acme_rl_plugin'", "pip install --force-reinstall acme-rl"),
        ("import nowhere_at_all\n", "acme_rl_plugin.py:1", "'nowhere_at_all'"),
        ("\nraise ValueError('no licence')\n", "ValueError: no licence (acme_rl_plugin.py:2)", UPGRADE),
        ("raise SystemExit(3)\n", "SystemExit: 3 (acme_rl_plugin.py:1)", UPGRADE),
        ("raise ValueError\n", "ValueError", UPGRADE),
        (HOOK.format("raise SystemExit(0)"), "SystemExit: 0 (acme_rl_plugin.py:4)", UPGRADE),
        (HOOK.format("return ['exact']"), "'exact'", UPGRADE),
        (HOOK.replace("rewards", "rewads").format("return []"), "'rlcore_rewads'", UPGRADE),
        (HOOK.replace("rewards", "xyzzy").format("return []"), "'rlcore_xyzzy'", UPGRADE),
        (HOOK.format("return []").replace("rewards()", "rewards(colour)"), "colour", UPGRADE),
        ("def rlcore_rewards():\n    return []\n", "rlcore_rewards", "@rlcore.hookimpl"),
        (HOOK.replace("@hookimpl", "@hookimpl(wrapper=True)").format("return (yield)"), "wrapper", UPGRADE),
        (
            IMPORTS + "@hookimpl\ndef rlcore_addhooks(pluginmanager):\n    raise OSError('no disk')\n",
            "OSError: no disk (acme_rl_plugin.py:4)",
            UPGRADE,
        ),
    ],
)
def test_broken_plugin_has_a_problem_and_a_fix(source: str | None, cause: str, fix: str, install: Install) -> None:
    install("acme-rl", source, plugin="acme")
    plugin = checked()
    assert plugin.state is State.BROKEN
    assert cause in plugin.problem
    assert fix in plugin.fix


def test_missing_entry_point_attribute_has_a_suggestion(install: Install) -> None:
    text = "[rlcore.plugins]\nacme = acme_rl_plugin:Hoks\n"
    install("acme-rl", "class Hooks: ...\n", plugin="acme", entry_points=text)
    plugin = checked()
    assert plugin.state is State.BROKEN
    assert "'acme_rl_plugin:Hoks'" in plugin.problem
    assert "'Hooks'" in plugin.problem
    assert plugin.fix == "pip install --force-reinstall acme-rl"


def test_entry_point_can_refer_to_an_object(install: Install) -> None:
    source = (
        IMPORTS
        + "class Hooks:\n    @hookimpl\n    def rlcore_rewards(self):\n        yield RewardSpec(id='a', target='b:c')\n"
    )
    text = "[rlcore.plugins]\nacme = acme_rl_plugin:hooks\n"
    install("acme-rl", source + "hooks = Hooks()\n", plugin="acme", entry_points=text)
    assert checked().state is State.OK
    assert "a" in {spec.id for spec in Registry().specs("reward")}


def test_undecodable_metadata_affects_only_its_distribution(install: Install, tmp_path: Path) -> None:
    install("acme-rl", None, plugin="acme")
    install("good-rl", HOOK.format("return []"), plugin="good")
    (tmp_path / "acme_rl-1.2.dist-info" / "entry_points.txt").write_bytes(b"[rlcore.plugins]\nacme = \xff\n")
    plugin = checked("acme-rl")
    assert plugin.state is State.BROKEN
    assert "entry_points.txt" in plugin.problem
    assert plugin.fix == "pip install --force-reinstall acme-rl"
    assert checked("good").state is State.OK


def test_invalid_requirement_is_reported(install: Install) -> None:
    install("acme-rl", HOOK.format("return []"), plugin="acme", requires=("rlcore-core (about 1)",))
    plugin = checked()
    assert plugin.state is State.INCOMPATIBLE
    assert "'rlcore-core (about 1)'" in plugin.problem
    assert "acme-rl" in plugin.fix


def test_incompatible_version_is_reported_with_a_pip_command(install: Install) -> None:
    install("acme-rl", "raise SystemExit('never imported')", plugin="acme", requires=("rlcore-core>=7,<8",))
    plugin = checked()
    assert plugin.state is State.INCOMPATIBLE
    assert "rlcore-core<8,>=7" in plugin.problem
    assert plugin.fix == "pip install --upgrade acme-rl 'rlcore-core<8,>=7'"


def test_name_conflict_message(install: Install) -> None:
    install("acme-rl", HOOK.format("return []"), plugin="acme")
    install("fork-rl", HOOK.format("return []"), plugin="Acme")
    both = [plugin for plugin in Plugins().load() if plugin.name.lower() == "acme"]
    assert [plugin.fix for plugin in both] == [
        f"remove one of them: pip uninstall {name}, or RLCORE_DISABLE_PLUGINS={name}" for name in ("acme-rl", "fork-rl")
    ]
    assert both[0].problem == "the name 'acme' is used by acme-rl 1.2 and fork-rl 1.2; neither is loaded"
    with pytest.raises(PluginError) as caught:
        Registry().plugin("acme")
    assert (caught.value.found, caught.value.where) == (both[0].problem, "acme-rl 1.2")


def test_plugin_cannot_take_a_reserved_name(install: Install) -> None:
    install("acme-rl", HOOK.format("return []"), plugin="core")
    mine, own = (plugin for plugin in Plugins().load() if plugin.name == "core")
    assert (own.distribution, own.state) == ("rlcore-core", State.OK)
    assert mine.state is State.CONFLICT
    assert "'core'" in mine.problem
    assert "pip uninstall acme-rl" in mine.fix


def test_builtin_ids_cannot_be_replaced(install: Install) -> None:
    source = "@hookimpl\ndef rlcore_trackers():\n    yield TrackerSpec(id='console', target='acme:Console')\n"
    install("acme-rl", IMPORTS + source, plugin="acme")
    offer = Registry().offer("tracker", "console")
    assert offer is not None
    assert offer.plugin.distribution == "rlcore-core"


def test_disabled_plugin_has_a_reason(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("acme-rl", None, plugin="acme")
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "acme")
    plugin = checked()
    assert plugin.state is State.DISABLED
    assert "RLCORE_DISABLE_PLUGINS" in plugin.problem
    assert "acme" in plugin.fix


def test_hooks_of_a_missing_or_broken_package_are_inactive(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {"rlcore_colours": "rlcore-of-the-moon", "rlcore_sounds": "other-rl"}
    monkeypatch.setattr(plugins_module, "HOOK_OWNERS", owners)
    hooks = "".join(f"@hookimpl\ndef {name}(): ...\n" for name in owners)
    install("acme-rl", IMPORTS + hooks, plugin="acme")
    install("other-rl", None)
    plugin = checked()
    assert plugin.state is State.OK
    assert plugin.notes == (
        "rlcore_colours is inactive: needs rlcore-of-the-moon (pip install rlcore-of-the-moon)",
        "rlcore_sounds is inactive: needs other-rl, which is broken",
    )


def test_output_during_plugin_import_is_suppressed(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme-rl", "print('Welcome!')\n" + HOOK.format("return []"), plugin="acme")
    plugin = checked()
    assert plugin.state is State.OK
    (complaint,) = plugin.complaints
    assert "'Welcome!'" in complaint.problem
    assert "acme_rl_plugin" in complaint.fix
    assert capsys.readouterr().out == ""


def test_heavy_import_message(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_import, "HEAVY", ("heavy_plugin", "large_plugin", "unused_plugin"))
    for name in ("heavy_plugin", "large_plugin"):
        (tmp_path / f"{name}.py").write_text("", encoding="utf-8")
    install("acme-rl", "import heavy_plugin, large_plugin\n" + HOOK.format("return []"), plugin="acme")
    (complaint,) = checked().complaints
    assert complaint.problem == "its import loads heavy_plugin and large_plugin, which slows down every rlcore command"
    assert complaint.fix == "do not import heavy_plugin and large_plugin in acme_rl_plugin"


def test_unknown_plugin_has_a_suggestion(install: Install) -> None:
    install("acme-rl", HOOK.format("return []"), plugin="acme")
    with pytest.raises(PluginError) as caught:
        Registry().plugin("acmee")
    assert "'acmee'" in caught.value.message
    assert "acme" in (caught.value.found or "")
    assert "'acme'" in (caught.value.fix or "")
