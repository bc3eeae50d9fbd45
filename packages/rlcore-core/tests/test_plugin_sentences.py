"""What is said of a plugin that cannot be used: the problem and what mends it, word for word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rlcore import plugin_import
from rlcore import plugins as plugins_module
from rlcore.discovery import Plugin, State
from rlcore.errors import PluginError
from rlcore.plugins import Plugins
from rlcore.registry import Registry

Install = Callable[..., None]

IMPORTS = "from rlcore import EngineSpec, RewardSpec, TrackerSpec, hookimpl, hookspec\n"
HOOK = IMPORTS + "@hookimpl\ndef rlcore_rewards():\n    {}\n"
OTHERWISE = "pip install --upgrade acme-rl, or RLCORE_DISABLE_PLUGINS=acme"


def judged(name: str = "acme") -> Plugin:
    """The plugin after everything that ``rlcore plugins list --check`` does to it."""
    plugins = Plugins()
    plugins.load()
    plugins.offers("rlcore_rewards")
    (found,) = [plugin for plugin in plugins.all() if plugin.name == name]
    return found


@pytest.mark.parametrize(
    ("source", "problem", "fix"),
    [
        (
            None,
            "its entry point names the module 'acme_rl_plugin', which is not there",
            "pip install --force-reinstall acme-rl",
        ),
        (
            "import nowhere_at_all\n",
            "ModuleNotFoundError: No module named 'nowhere_at_all' (acme_rl_plugin.py:1)",
            "install what brings the module 'nowhere_at_all', or RLCORE_DISABLE_PLUGINS=acme",
        ),
        ("\nraise ValueError('no licence')\n", "ValueError: no licence (acme_rl_plugin.py:2)", OTHERWISE),
        ("raise SystemExit(3)\n", "SystemExit: 3 (acme_rl_plugin.py:1)", OTHERWISE),
        ("raise ValueError\n", "ValueError: no message (acme_rl_plugin.py:1)", OTHERWISE),
        (
            HOOK.format("raise OSError('no disk')"),
            "rlcore_rewards failed: OSError: no disk (acme_rl_plugin.py:4)",
            OTHERWISE,
        ),
        (HOOK.format("raise SystemExit(0)"), "rlcore_rewards failed: SystemExit: 0 (acme_rl_plugin.py:4)", OTHERWISE),
        (
            HOOK.format("return ['exact']"),
            "rlcore_rewards failed: TypeError: it gave 'exact', not an object of Spec",
            OTHERWISE,
        ),
        (
            HOOK.replace("rewards", "rewads").format("return []"),
            "unknown hook 'rlcore_rewads'; did you mean 'rlcore_rewards'?",
            OTHERWISE,
        ),
        (HOOK.replace("rewards", "xyzzy").format("return []"), "unknown hook 'rlcore_xyzzy'", OTHERWISE),
        (
            "def rlcore_rewards():\n    return []\n",
            "rlcore_rewards lacks its marker",
            "write @rlcore.hookimpl above rlcore_rewards",
        ),
        (
            HOOK.replace("@hookimpl", "@hookimpl(wrapper=True)").format("return (yield)"),
            "it wraps a hook, and rlcore calls each implementation alone",
            OTHERWISE,
        ),
        (
            IMPORTS + "@hookimpl\ndef rlcore_addhooks(pluginmanager):\n    raise OSError('no disk')\n",
            "rlcore_addhooks failed: OSError: no disk (acme_rl_plugin.py:4)",
            OTHERWISE,
        ),
    ],
)
def test_a_broken_plugin_has_a_sentence_and_what_mends_it(
    source: str | None, problem: str, fix: str, install: Install
) -> None:
    install("acme-rl", source, plugin="acme")
    plugin = judged()
    assert (plugin.state, plugin.problem, plugin.fix) == (State.BROKEN, problem, fix)


def test_a_parameter_too_many_is_named(install: Install) -> None:
    install("acme-rl", HOOK.format("return []").replace("rewards()", "rewards(colour)"), plugin="acme")
    plugin = judged()
    assert (plugin.state, plugin.fix) == (State.BROKEN, OTHERWISE)
    assert "rlcore_rewards" in plugin.problem
    assert "colour" in plugin.problem


def test_an_entry_point_that_names_a_missing_attribute_is_told_the_nearest(install: Install) -> None:
    text = "[rlcore.plugins]\nacme = acme_rl_plugin:Hoks\n"
    install("acme-rl", "class Hooks: ...\n", plugin="acme", entry_points=text)
    plugin = judged()
    assert plugin.problem == (
        "its entry point names 'acme_rl_plugin:Hoks', and acme_rl_plugin has no 'Hoks'; did you mean 'Hooks'?"
    )
    assert plugin.fix == "pip install --force-reinstall acme-rl"


def test_an_entry_point_may_name_an_object(install: Install) -> None:
    source = (
        IMPORTS
        + "class Hooks:\n    @hookimpl\n    def rlcore_rewards(self):\n        yield RewardSpec(id='a', target='b:c')\n"
    )
    text = "[rlcore.plugins]\nacme = acme_rl_plugin:hooks\n"
    install("acme-rl", source + "hooks = Hooks()\n", plugin="acme", entry_points=text)
    assert judged().state is State.OK
    assert "a" in {spec.id for spec in Registry().specs("reward")}


def test_metadata_that_is_no_text_costs_only_its_distribution(install: Install, tmp_path: Path) -> None:
    install("acme-rl", None, plugin="acme")
    install("good-rl", HOOK.format("return []"), plugin="good")
    (tmp_path / "acme_rl-1.2.dist-info" / "entry_points.txt").write_bytes(b"[rlcore.plugins]\nacme = \xff\n")
    plugin = judged("acme-rl")
    assert plugin.state is State.BROKEN
    assert plugin.problem.startswith("its entry_points.txt cannot be read: 'utf-8' codec")
    assert plugin.fix == "pip install --force-reinstall acme-rl"
    assert judged("good").state is State.OK


def test_a_requirement_that_cannot_be_read_is_told(install: Install) -> None:
    install("acme-rl", HOOK.format("return []"), plugin="acme", requires=("rlcore-core (about 1)",))
    plugin = judged()
    assert plugin.state is State.INCOMPATIBLE
    assert plugin.problem.startswith("its requirement 'rlcore-core (about 1)' cannot be read: ")
    assert plugin.fix == "ask the author of acme-rl to mend it"


def test_another_version_is_told_with_the_line_that_mends_it(install: Install) -> None:
    install("acme-rl", "raise SystemExit('never imported')", plugin="acme", requires=("rlcore-core>=7,<8",))
    plugin = judged()
    assert plugin.state is State.INCOMPATIBLE
    assert plugin.problem.startswith("acme-rl 1.2 wants rlcore-core<8,>=7, found 0.")
    assert plugin.fix == "pip install --upgrade acme-rl 'rlcore-core<8,>=7'"


def test_two_of_one_name_are_told_how_to_choose(install: Install) -> None:
    install("acme-rl", HOOK.format("return []"), plugin="acme")
    install("fork-rl", HOOK.format("return []"), plugin="Acme")
    both = [plugin for plugin in Plugins().load() if plugin.name.lower() == "acme"]
    assert [plugin.fix for plugin in both] == [
        f"keep one: pip uninstall {name}, or RLCORE_DISABLE_PLUGINS={name}, drops this one"
        for name in ("acme-rl", "fork-rl")
    ]
    assert both[0].problem == "the name 'acme' is offered by acme-rl 1.2 and fork-rl 1.2; neither is loaded"
    with pytest.raises(PluginError, match="the plugin 'acme' is in conflict"):
        Registry().plugin("acme")


def test_a_plugin_that_takes_rlcores_own_name_costs_only_itself(install: Install) -> None:
    install("acme-rl", HOOK.format("return []"), plugin="core")
    mine, own = (plugin for plugin in Plugins().load() if plugin.name == "core")
    assert (own.distribution, own.state) == ("rlcore-core", State.OK)
    assert (mine.state, mine.problem) == (State.CONFLICT, "the name 'core' is rlcore's own")
    assert mine.fix == "pip uninstall acme-rl, or RLCORE_DISABLE_PLUGINS=acme-rl, drops this one"


def test_an_id_of_rlcores_own_cannot_be_taken_away(install: Install) -> None:
    source = "@hookimpl\ndef rlcore_trackers():\n    yield TrackerSpec(id='console', target='acme:Console')\n"
    install("acme-rl", IMPORTS + source, plugin="acme")
    offer = Registry().offer("tracker", "console")
    assert offer is not None
    assert offer.plugin.distribution == "rlcore-core"


def test_a_disabled_plugin_is_told_why(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("acme-rl", None, plugin="acme")
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "acme")
    plugin = judged()
    assert (plugin.state, plugin.problem) == (State.DISABLED, "named in RLCORE_DISABLE_PLUGINS")
    assert plugin.fix == "take acme out of RLCORE_DISABLE_PLUGINS"


def test_hooks_of_an_absent_or_unusable_package_are_inactive(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {"rlcore_colours": "rlcore-of-the-moon", "rlcore_sounds": "other-rl"}
    monkeypatch.setattr(plugins_module, "HOOK_OWNERS", owners)
    hooks = "".join(f"@hookimpl\ndef {name}(): ...\n" for name in owners)
    install("acme-rl", IMPORTS + hooks, plugin="acme")
    install("other-rl", None)
    plugin = judged()
    assert plugin.state is State.OK
    assert plugin.notes == (
        "rlcore_colours is inactive: needs rlcore-of-the-moon (pip install rlcore-of-the-moon)",
        "rlcore_sounds is inactive: needs other-rl, which is broken",
    )


def test_what_a_plugin_prints_does_not_reach_the_output(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme-rl", "print('Welcome!')\n" + HOOK.format("return []"), plugin="acme")
    plugin = judged()
    assert plugin.state is State.OK
    (complaint,) = plugin.complaints
    assert complaint.problem == "it prints when it is imported: 'Welcome!'"
    assert complaint.fix == "take the print out of acme_rl_plugin"
    assert capsys.readouterr().out == ""


def test_a_heavy_import_is_told(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_import, "HEAVY", ("heavy_plugin", "large_plugin", "unused_plugin"))
    for name in ("heavy_plugin", "large_plugin"):
        (tmp_path / f"{name}.py").write_text("", encoding="utf-8")
    install("acme-rl", "import heavy_plugin, large_plugin\n" + HOOK.format("return []"), plugin="acme")
    (complaint,) = judged().complaints
    assert complaint.problem == (
        "its import brings heavy_plugin and large_plugin along, which makes every rlcore command slow"
    )
    assert complaint.fix == "leave heavy_plugin and large_plugin out of what acme_rl_plugin imports"


def test_a_plugin_that_is_not_there_is_told_the_nearest(install: Install) -> None:
    install("acme-rl", HOOK.format("return []"), plugin="acme")
    with pytest.raises(PluginError) as caught:
        Registry().plugin("acmee")
    assert caught.value.message == "there is no plugin 'acmee'"
    assert "acme" in (caught.value.found or "")
    assert caught.value.mend == "did you mean 'acme'?"
