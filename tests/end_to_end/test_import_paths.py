"""Where a configuration takes an id it takes ``module:name`` and ``file.py:name``, and says what is wrong with one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rlcore.cli import main

MINE = '''
from pathlib import Path
from rlcore import Demonstration, Message, Observation, Step, Table, Task, tool
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.engines.torch.config import TorchEngineConfig
from rlcore_rollout.engines.torch.engine import TorchEngine
from rlcore_rollout.executors.local import LocalExecutor, LocalExecutorConfig
from rlcore_rollout.parsers.hermes import HermesParser
from rlcore_trainer import advantages, losses
from rlcore_trainer.config import PolicyGradientConfig, SingleProcessConfig
from rlcore_trainer.models.config import TinyQwen2Config
from rlcore_trainer.models.tiny_qwen2 import build
from rlcore_trainer.policy_gradient import PolicyGradientTrainer
from rlcore_trainer.strategies.single import SingleProcess

USED = set()

def used(name, parent):
    """The same class, which notes that it was made."""
    def __init__(self, *arguments, **options):
        USED.add(name)
        parent.__init__(self, *arguments, **options)
    return type(name, (parent,), {"__init__": __init__})

class Echo:
    class Config(Table):
        loud: bool = False
    def __init__(self, config): USED.add(f"environment loud={config.loud}")
    def reset(self, task, *, seed): return Observation(messages=task.messages)
    def step(self, action): return Step(terminated=True)
    def close(self): ...

class Words:
    def tasks(self, split):
        USED.add("dataset")
        return [Task(id=f"{split}{n}", messages=(Message(role="user", content=f"say {n}"),)) for n in range(2)]

class Log:
    def __init__(self, options, folder): ...
    def log(self, step, metrics): USED.add("tracker")
    def close(self): ...

def short(trajectory, task):
    USED.add("reward")
    return 1 / (1 + len(trajectory.final_response))

def compare(group):
    USED.add("group reward")
    return [1.0 for _ in group.trajectories]
compare.scope = "group"

def grpo(rewards_N, groups_N, *, normalise_by_std=True):
    USED.add("advantage")
    return advantages.grpo(rewards_N, groups_N, normalise_by_std=normalise_by_std)

def clip(logprobs_M, old_logprobs_M, advantages_M, weights_M, *, clip_low, clip_high):
    USED.add("loss")
    tokens = (logprobs_M, old_logprobs_M, advantages_M, weights_M)
    return losses.clip(*tokens, clip_low=clip_low, clip_high=clip_high)

class Trainer(used("trainer", PolicyGradientTrainer)):
    Config = PolicyGradientConfig
    tables = (
        ("algorithm", "rlcore_trainer.algorithm_config:AlgorithmConfig"),
        ("warmup", "rlcore_trainer.config:WarmupConfig"),
        ("critic", "rlcore_trainer.config:CriticConfig"),
    )

class Engine(used("engine", TorchEngine)):
    Config = TorchEngineConfig

class Executor(used("executor", LocalExecutor)):
    Config = LocalExecutorConfig

class Strategy(used("strategy", SingleProcess)):
    Config = SingleProcessConfig

Format = used("chat format", PlainFormat)
Parser = used("tool parser", HermesParser)

def model(folder, texts, seed, config):
    USED.add("model")
    build(folder, texts, seed, TinyQwen2Config(layers=1, width=32, feed_forward=32))

@tool
def lamp(on: bool) -> str:
    """Switch the lamp."""
    return "done"

'''

RUN = """
[model]
path = "builtin:mine.py:model"
chat_format = "mine.py:Format"
tool_parser = "mine.py:Parser"
[environment]
id = "mine.py:Echo"
loud = true
[data]
id = "mine.py:Words"
[[reward]]
id = "mine.py:short"
[[reward]]
id = "mine.py:compare"
weight = 0
[rollout]
engine = "mine.py:Engine"
group_size = 2
max_new_tokens = 4
[algorithm]
advantage = "mine.py:grpo"
loss = "mine.py:clip"
[trainer]
id = "mine.py:Trainer"
steps = 1
tasks_per_step = 2
[strategy]
id = "mine.py:Strategy"
[executor]
id = "mine.py:Executor"
[trackers]
use = ["mine.py:Log"]
"""

KEYS = {
    "environment": ("environment.id={}", "data.id=gsm8k-tools"),
    "dataset": ("data.id={}",),
    "reward": ("reward.0.id={}",),
    "tool": ("environment.tools={}",),
    "engine": ("rollout.engine={}",),
    "tracker": ('trackers.use=["{}"]',),
    "advantage": ("algorithm.advantage={}",),
    "loss": ("algorithm.loss={}",),
    "executor": ("executor.id={}",),
    "strategy": ("strategy.id={}",),
    "trainer": ("trainer.id={}",),
    "chat format": ("model.chat_format={}",),
    "tool parser": ("model.tool_parser={}",),
    "model": ("model.path=builtin:{}",),
}
"""Where each kind is named in a configuration."""

FUNCTIONS = ("tool", "advantage", "loss", "model")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file beside which the test stands."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    return path


def rlcore(*arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status and everything that was printed."""
    monkeypatch.setattr(sys, "argv", ["rlcore", *arguments])
    capsys.readouterr()
    status = main()
    return status, "".join(capsys.readouterr())


def test_a_run_whose_every_part_stands_in_a_file(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run.toml").write_text(RUN, encoding="utf-8")
    status, printed = rlcore("run", "-c", "run.toml", monkeypatch=monkeypatch, capsys=capsys)
    assert status == 0, printed
    (module,) = [module for module in sys.modules.values() if getattr(module, "__file__", None) == str(mine)]
    classes = {"chat format", "tool parser", "engine", "executor", "strategy", "trainer"}
    functions = {"reward", "group reward", "advantage", "loss", "model"}
    assert classes | functions | {"environment loud=True", "dataset", "tracker"} == module.USED


def test_a_tool_in_a_file_or_a_module_is_taken(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = 'environment.tools=["mine.py:lamp", "rl_plugin_gsm8k_tools.calculator:calculator"]'
    asked = ("run", "--dry-run", "-p", "gsm8k-tools", tools)
    assert rlcore(*asked, monkeypatch=monkeypatch, capsys=capsys)[0] == 0


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("gone.py:Part", ["there is no file", "gone.py", "give the path from the folder you stand in"]),
        ("gone_module:Part", ["needs the module 'gone_module'", "it is not installed"]),
        ("mine.py:Gone", ["mine.py has no 'Gone'"]),
        ("wrong.py:part", ["must be a {form}", "a value of type int"]),
        ("wrong.py:other", ["must be a {form}", "the {other}"]),
        ("raises.py:Part", ["cannot be imported", "ZeroDivisionError: division by zero", "raises.py:2"]),
        ("exits.py:Part", ["cannot be imported", "SystemExit: 0", "exits.py:2"]),
        ("mine.py", ["is a file", "mine.py:NAME"]),
    ],
)
def test_a_path_that_leads_nowhere_is_told_before_anything_starts(
    kind: str,
    target: str,
    says: list[str],
    mine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    form, other = ("function", "class Other") if kind in (*FUNCTIONS, "reward") else ("class", "function other")
    kind_of_other = "class Other: ..." if form == "function" else "def other(): ..."
    Path("wrong.py").write_text(f"part = 7\n{kind_of_other}\nother = {other.split()[1]}\n", encoding="utf-8")
    Path("raises.py").write_text("x = 1\nx / 0\n", encoding="utf-8")
    Path("exits.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    overrides = [key.format(target) for key in KEYS[kind]]
    status, printed = rlcore("run", "-p", "gsm8k-tools", *overrides, monkeypatch=monkeypatch, capsys=capsys)
    assert status == 2, printed
    for text in says:
        assert text.format(form=form, other=other) in printed
    assert KEYS[kind][0].partition("=")[0] in printed
    assert "Traceback" not in printed
    assert not Path("runs").exists()


def test_a_name_that_is_nearly_right_is_suggested(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("run", "-p", "gsm8k-tools", "executor.id=mine.py:Executer")
    assert "did you mean 'Executor'?" in rlcore(*asked, monkeypatch=monkeypatch, capsys=capsys)[1]


def test_a_class_without_the_methods_of_its_kind_is_told_which(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("half.py").write_text("class Half:\n    def reset(self, task, *, seed): ...\n", encoding="utf-8")
    asked = ("run", "-p", "gsm8k-tools", "environment.id=half.py:Half", "data.id=gsm8k-tools")
    printed = rlcore(*asked, monkeypatch=monkeypatch, capsys=capsys)[1]
    assert "environment 'half.py:Half' must be a class with reset, step and close" in printed
    assert "the class Half has no step or close" in printed


def test_an_environment_in_a_file_needs_its_dataset_named(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run.toml").write_text(RUN.replace('[data]\nid = "mine.py:Words"\n', ""), encoding="utf-8")
    status, printed = rlcore("run", "-c", "run.toml", monkeypatch=monkeypatch, capsys=capsys)
    assert status == 2
    assert "give data.id=file.py:Class" in printed


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def lamp(on: bool) -> str:\n    return 'done'\n", "docstring"),
        ("def lamp(on: object) -> str:\n    'Switch.'\n    return 'done'\n", "on"),
    ],
)
def test_a_function_that_no_model_could_call_is_told_before_anything_starts(
    source: str, says: str, mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("tools.py").write_text(source, encoding="utf-8")
    asked = ("run", "-p", "gsm8k-tools", "environment.tools=tools.py:lamp")
    status, printed = rlcore(*asked, monkeypatch=monkeypatch, capsys=capsys)
    assert status == 2
    assert says in printed
    assert not Path("runs").exists()


def test_what_stands_beside_and_is_not_found_is_told_how_to_write(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("run", "-p", "gsm8k-tools", "trainer.id=mine:Trainer")
    assert "write mine.py:NAME" in rlcore(*asked, monkeypatch=monkeypatch, capsys=capsys)[1]
    Path("uses.py").write_text("import mine\n", encoding="utf-8")
    asked = ("run", "-p", "gsm8k-tools", "trainer.id=uses.py:Trainer")
    assert f"export PYTHONPATH={mine.parent}" in rlcore(*asked, monkeypatch=monkeypatch, capsys=capsys)[1]
