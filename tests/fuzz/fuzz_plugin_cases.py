"""Cases of a plugin whose parts answer with anything, or raise anything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from fuzz_case import Case

SOURCE = '''
import asyncio, os, sys
import click
from rlcore import specs
from rlcore.checks import Finding
from rlcore.hookspecs import hookimpl
from rlcore.types import Message, Observation, Step, Task

PLACE, INDEX = os.environ.get("FUZZ_PLACE"), int(os.environ.get("FUZZ_INDEX", "0"))

class Strange(BaseException): ...
class Unprintable:
    def __repr__(self): raise ValueError("no text of this")
    __str__ = __repr__
class Mute(Exception):
    def __str__(self): raise ValueError("no text of this error")
def nested():
    value = []
    for _ in range(100_000): value = [value]
    return value
def numbers():
    yield 1
    raise KeyError("in the middle")
def raises(error):
    def answer(): raise error
    return answer
def endless(): return endless()
def prints():
    print('{"printed": "to stdout"}')
    return None
ODD = [
    lambda: None, lambda: 0, lambda: -1, lambda: True, lambda: 1.5, lambda: float("nan"), lambda: float("inf"),
    lambda: 10 ** 24, lambda: 10 ** 5000, lambda: "", lambda: "text", lambda: "\\ud800", lambda: "\\x1b[31m\\n\\r",
    lambda: b"bytes",
    lambda: [], lambda: [None], lambda: {}, lambda: {"a": 1}, lambda: (), lambda: {1, 2}, object, lambda: object,
    lambda: Unprintable(), lambda: [Unprintable()], nested, numbers, lambda: (n for n in range(3)), lambda: print,
    lambda: ValueError("returned, not raised"), lambda: Observation(messages=()), lambda: Step(terminated=True),
    lambda: asyncio.sleep(0), lambda: Task(id="x", messages=()),
    lambda: Message(role="user", content="x" * 100_000),
    raises(ValueError("a \\x1b[31mbug\\nof two lines")), raises(KeyError("k")), raises(AssertionError()),
    raises(Mute()),
    raises(StopIteration(1)), raises(RuntimeError("\\ud800")), raises(MemoryError()), raises(NotImplementedError()),
    raises(SystemExit(0)), raises(SystemExit("bye")), raises(Strange("strange")), raises(GeneratorExit()),
    raises(asyncio.CancelledError()), raises(TimeoutError()), raises(OSError(28, "No space left on device")),
    raises(ExceptionGroup("many", [ValueError("one")])), raises(BaseExceptionGroup("many", [Strange("one")])),
    endless, prints,
]

def at(place, right):
    """The right answer, except at the place of this case."""
    return ODD[INDEX]() if place == PLACE else right()

at("import", lambda: None)
M = "fuzz_plugin"

@hookimpl
def rlcore_environments():
    return at("environments", lambda: [specs.EnvironmentSpec(id="fuzz", target=f"{M}:Environment")])
@hookimpl
def rlcore_datasets():
    return at("datasets", lambda: [specs.DatasetSpec(id="fuzz", target=f"{M}:Data", prepare=f"{M}:prepare")])
@hookimpl
def rlcore_rewards(): return at("rewards", lambda: [
    specs.RewardSpec(id="fuzz", target=f"{M}:reward"),
    specs.RewardSpec(id="fuzz-group", target=f"{M}:Group", scope="group")])
@hookimpl
def rlcore_tools(): return at("tools", lambda: [specs.ToolSpec(id="fuzz", target=f"{M}:tool")])
@hookimpl
def rlcore_trackers(): return at("trackers", lambda: [specs.TrackerSpec(id="fuzz", target=f"{M}:Tracker")])
@hookimpl
def rlcore_checks(): return at("checks", lambda: [specs.CheckSpec(id="fuzz", target=f"{M}:check")])
@hookimpl
def rlcore_diagnoses(): return at("diagnoses", lambda: [specs.DiagnosisSpec(id="fuzz", target=f"{M}:diagnosis")])
@hookimpl
def rlcore_config_adapters():
    return at("config_adapters", lambda: [specs.ConfigAdapterSpec(id="fuzz", target=f"{M}:Adapter", overrides=True)])
@hookimpl
def rlcore_commands(): return at("commands", lambda: [specs.CommandSpec(id="fuzz", target=f"{M}:command")])
@hookimpl
def rlcore_recipes(): return at("recipes", lambda: [])
@hookimpl
def rlcore_run_started(run): at("run_started", lambda: None)
@hookimpl
def rlcore_step_finished(run, step, metrics): at("step_finished", lambda: None)
@hookimpl
def rlcore_rollouts_scored(run, step, purpose, groups): at("rollouts_scored", lambda: None)
@hookimpl
def rlcore_run_finished(run, error): at("run_finished", lambda: None)
@hookimpl
def rlcore_chat_format(folder): return at("chat_format", lambda: None)

class Environment:
    def __init__(self): at("environment.init", lambda: None)
    def reset(self, task, *, seed):
        return at("reset", lambda: Observation(messages=at("reset.messages", lambda: task.messages)))
    def step(self, action): return at("step", lambda: Step(terminated=at("step.terminated", lambda: True)))
    def close(self): return at("close", lambda: None)
class Data:
    def __init__(self): at("data.init", lambda: None)
    def tasks(self, split):
        right = lambda: [Task(id=at("task.id", lambda: f"{split}-{n}"), messages=(Message(role="user", content="1?"),),
                              fields={"answer": at("task.field", lambda: "1")}) for n in range(4)]
        return at("tasks", right)
    def texts(self): return at("texts", lambda: ["0?", "1?"])
def prepare(): return at("prepare", lambda: {"rows": 1})
def reward(trajectory, task): return at("reward", lambda: 0.5)
class Group:
    def __init__(self): at("group.init", lambda: None)
    def __call__(self, group): return at("group", lambda: [0.5] * len(group.trajectories))
def tool(x: int) -> str:
    """A tool."""
    return at("tool", lambda: "ok")
class Tracker:
    def __init__(self, options, folder): at("tracker.init", lambda: None)
    def log(self, step, metrics): return at("tracker.log", lambda: None)
    def close(self): return at("tracker.close", lambda: None)
def diagnosis(run): return at("diagnosis", lambda: None)
def check(): return at("check", lambda: [Finding(status="ok", text="fine")])
class Adapter:
    keys = ("fuzz.key",)
    def claims(self, key): return at("claims", lambda: key == "fuzz.key")
    def read_overrides(self, overrides, given):
        from rlcore.config.adapters import Translation
        from rlcore.config.layers import values_layer
        return at("read_overrides", lambda: Translation(layer=values_layer({"seed": 1}, "fuzz.key")))
Adapter = Adapter()
@click.command()
def command(): return at("command", lambda: None)
'''
ANSWERS = 53
"""Entries of ``ODD``."""
LISTS = ("plugins", "list", "--check", "--json")
EVALUATE = (
    *("eval", "--json", "environment.id=fuzz", "reward.0.id=fuzz", "reward.1.id=fuzz-group", "rollout.engine=scripted"),
    *('rollout.scripted.replies=["1"]', "evaluation.tasks=2", "model.path=model", "data.id=fuzz", "-c", "base.toml"),
)
TRAIN = (
    *("run", "-c", "base.toml", "environment.id=fuzz", "data.id=fuzz", "model.path=model", "trainer.steps=1"),
    *("trainer.tasks_per_step=2", "rollout.group_size=2", "rollout.max_new_tokens=2", "evaluation.every=0"),
    *("trackers.use=[fuzz]", "observers=[fuzz]", "rollout.torch.slots=8"),
)
BASE = '[[reward]]\nid = "fuzz"\n\n[[reward]]\nid = "fuzz-group"\nweight = 0.5\n'
HOOKS = (
    "environments",
    "datasets",
    "rewards",
    "tools",
    "trackers",
    "checks",
    "diagnoses",
    "config_adapters",
    "commands",
    "recipes",
    "import",
)
COMMANDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (HOOKS, LISTS),
    (HOOKS, ("data", "list")),
    (HOOKS, ("config", "show", "-p", "gsm8k-tools", "fuzz.key=1")),
    (("claims", "read_overrides", "config_adapters"), ("config", "show", "-p", "gsm8k-tools", "fuzz.key=1", "seed=2")),
    (("check", "checks"), ("doctor", "--json")),
    (("command", "commands"), ("fuzz",)),
    (("prepare", "datasets"), ("data", "prepare", "fuzz", "--json")),
    (("tasks", "data.init", "task.id", "task.field"), ("data", "show", "fuzz")),
    (
        *(
            (
                "environment.init",
                "reset",
                "reset.messages",
                "step",
                "step.terminated",
                "close",
                "reward",
                "group.init",
                "group",
            ),
        ),
        EVALUATE,
    ),
    (("tasks", "data.init", "task.id", "task.field", "chat_format", "environments", "rewards"), EVALUATE),
    (
        *(("run_started", "step_finished", "rollouts_scored", "run_finished", "tracker.init", "tracker.log"),),
        TRAIN,
    ),
    (("tracker.close", "reward", "reset", "step", "texts", "diagnosis", "diagnoses"), TRAIN),
)


def install(site: Path) -> None:
    """Write the plugin and its metadata."""
    information = site / "fuzz_plugin-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "fuzz_plugin.py").write_text(SOURCE, encoding="utf-8")
    (information / "METADATA").write_text("Metadata-Version: 2.4\nName: fuzz-plugin\nVersion: 1.0\n", encoding="utf-8")
    (information / "entry_points.txt").write_text("[rlcore.plugins]\nfuzz = fuzz_plugin\n", encoding="utf-8")


def plugin_answers(count: int, site: Path, model: Path) -> Iterator[Case]:
    """One part of the plugin gives an odd answer, or raises, in a command that uses it."""
    for number in range(count):
        rng = random.Random(f"plugin {number}")
        places, command = COMMANDS[rng.choices(range(len(COMMANDS)), (4, 2, 2, 3, 3, 3, 3, 5, 14, 6, 3, 3))[0]]
        place, index = rng.choice(places), rng.randrange(ANSWERS)
        uses_model = command in (EVALUATE, TRAIN)
        yield Case(
            name=f"plugin-{number:04}",
            arguments=command,
            folders={"model": model} if uses_model else {},
            files={"base.toml": BASE.encode()} if uses_model else {},
            environment={"FUZZ_SITE": str(site), "FUZZ_PLACE": place, "FUZZ_INDEX": str(index)},
            writes=frozenset({"runs"} if command is TRAIN else set()),
            keeps=frozenset({"runs"}),
            bug_of="fuzz-plugin 1.0 failed" if place == "command" else None,
        )
