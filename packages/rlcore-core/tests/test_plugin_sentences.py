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
REWARD = "RewardSpec(id='half', target='a:b')"
HOOK_FAILED = "rlcore_rewards failed:"
UPGRADE = "pip install --upgrade acme-rl"
DISABLE = f"{UPGRADE}, or RLCORE_DISABLE_PLUGINS=acme"


def checked(name: str = "acme") -> Plugin:
    """The plugin after it was imported and its hooks were called, as by ``rlcore plugins list --check``."""
    plugins = Plugins()
    plugins.load()
    plugins.offers("rlcore_rewards")
    (found,) = [plugin for plugin in plugins.all() if plugin.name == name]
    return found


@pytest.mark.parametrize(
    ("source", "cause", "fix"),
    [
        (None, "'acme_rl_plugin'", "pip install --force-reinstall acme-rl"),
        ("import nowhere_at_all\n", "No module named 'nowhere_at_all' (acme_rl_plugin.py:1)", "'nowhere_at_all'"),
        ("def rlcore_rewards(:\n", "(acme_rl_plugin.py:1)", UPGRADE),
        ("\nraise ValueError('no licence')\n", "ValueError: no licence (acme_rl_plugin.py:2)", UPGRADE),
        ("raise SystemExit(3)\n", "SystemExit: 3 (acme_rl_plugin.py:1)", UPGRADE),
        ("raise ValueError\n", "ValueError", UPGRADE),
        (HOOK.format("raise SystemExit(0)"), "SystemExit: 0 (acme_rl_plugin.py:4)", UPGRADE),
        (HOOK.format("raise OSError('no disk')"), f"{HOOK_FAILED} OSError: no disk (acme_rl_plugin.py:4)", DISABLE),
        (HOOK.format(f"yield {REWARD}\n    raise ValueError('no licence')"), f"{HOOK_FAILED} ValueError", UPGRADE),
        (HOOK.format("yield {'id': 'half'}"), f"{HOOK_FAILED} TypeError", UPGRADE),
        (HOOK.format("return 7"), f"{HOOK_FAILED} TypeError", UPGRADE),
        (HOOK.format("return ['exact']"), "'exact'", UPGRADE),
        (HOOK.replace("rewards", "rewads").format("return []"), "did you mean 'rlcore_rewards'?", UPGRADE),
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
    install("good-rl", HOOK.format(f"yield {REWARD.replace('half', 'good')}"))
    plugin = checked()
    assert plugin.state is State.BROKEN
    assert cause in plugin.problem
    assert fix in plugin.fix
    assert {"good", "half"} & {spec.id for spec in Registry().specs("reward")} == {"good"}


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


@pytest.mark.parametrize("line", [b"acme = \xff", b"this line has no equals sign"])
def test_undecodable_metadata_affects_only_its_distribution(install: Install, tmp_path: Path, line: bytes) -> None:
    install("acme-rl", None, plugin="acme")
    install("good-rl", HOOK.format("return []"), plugin="good")
    (tmp_path / "acme_rl-1.2.dist-info" / "entry_points.txt").write_bytes(b"[rlcore.plugins]\n" + line + b"\n")
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


def test_hooks_of_a_missing_or_broken_package_are_inactive(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {"rlcore_colours": "rlcore-of-the-moon", "rlcore_sounds": "other-rl"}
    monkeypatch.setattr(plugins_module, "HOOK_OWNERS", owners)
    hooks = "".join(f"@hookimpl\ndef {name}(): raise RuntimeError('never called')\n" for name in owners)
    install("acme-rl", HOOK.format(f"yield {REWARD}") + hooks, plugin="acme")
    install("other-rl", None)
    plugin = checked()
    assert plugin.state is State.OK
    assert Plugins().offers("rlcore_colours") == []
    assert "half" in {spec.id for spec in Registry().specs("reward")}
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
