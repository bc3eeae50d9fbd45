"""Import paths ``module:name`` and ``file.py:name`` as ids in a configuration, and errors about them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands_here import run_here

pytestmark = pytest.mark.slow
Call = Callable[..., tuple[int, str]]

MINE = '''
from pathlib import Path
from rlcore import Demonstration, Message, Observation, Step, Table, Task, tool
from rlcore_rollout.chat.plain import PlainFormat
from rlcore_rollout.engines.torch.config import TorchEngineConfig
from rlcore_rollout.engines.torch.engine import TorchEngine
from rlcore_rollout.sampler.local import LocalSampler, LocalSamplerConfig
from rlcore_rollout.parsers.hermes import HermesParser
from rlcore_trainer.algorithms import AdvantageInputs, AdvantageOutput, AdvantageTraits, LossInputs, LossOutput
from rlcore_trainer.algorithms.advantages.grpo import grpo
from rlcore_trainer.algorithms.losses.clip import clip
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.distributed.config import SingleProcessConfig
from rlcore_models.builtin.config import TinyQwen2Config
from rlcore_models.builtin.tiny_qwen2 import build
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer
from rlcore_trainer.distributed.strategies.single import SingleProcess

USED = set()

def used(name, parent):
    """A subclass that records its construction."""
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

class Grpo:
    traits = AdvantageTraits(compares_siblings=True)
    class Config(Table):
        scale: float = 1.0
    def __init__(self, config): self.scale = config.scale
    def __call__(self, inputs: AdvantageInputs) -> AdvantageOutput:
        USED.add(f"advantage scale={self.scale}")
        advantages_N, metrics = grpo(inputs.rewards_N, inputs.groups_N)
        return AdvantageOutput(advantages=self.scale * advantages_N, metrics=metrics)

def my_loss(inputs: LossInputs) -> LossOutput:
    USED.add("loss")
    loss, metrics = clip(inputs.logprobs_M, inputs.old_logprobs_M, inputs.advantages_M, inputs.weights_M)
    return LossOutput(loss=loss, metrics=metrics)

class Trainer(used("trainer", PolicyGradientTrainer)):
    Config = PolicyGradientConfig
    tables = (
        ("algorithm", "rlcore_trainer.algorithms.config:AlgorithmConfig"),
        ("warmup", "rlcore_trainer.config:WarmupConfig"),
        ("critic", "rlcore_trainer.learner.critic_config:CriticConfig"),
    )

class Engine(used("engine", TorchEngine)):
    Config = TorchEngineConfig

class Sampler(used("sampler", LocalSampler)):
    Config = LocalSamplerConfig

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
advantage = { id = "mine.py:Grpo", scale = 0.5 }
loss = "mine.py:my_loss"
[trainer]
id = "mine.py:Trainer"
steps = 1
tasks_per_step = 2
[strategy]
id = "mine.py:Strategy"
[sampler]
id = "mine.py:Sampler"
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
    "sampler": ("sampler.id={}",),
    "strategy": ("strategy.id={}",),
    "trainer": ("trainer.id={}",),
    "chat format": ("model.chat_format={}",),
    "tool parser": ("model.tool_parser={}",),
    "model": ("model.path=builtin:{}",),
}
"""The configuration key of each kind."""

FUNCTIONS = ("tool", "advantage", "loss", "model")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    return path


@pytest.fixture
def rlcore(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Exit status and output of a command."""

    def call(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        status = run_here(monkeypatch, *arguments)
        return status, "".join(capsys.readouterr())

    return call


def test_run_with_all_components_from_a_file(mine: Path, rlcore: Call) -> None:
    Path("run.toml").write_text(RUN, encoding="utf-8")
    status, printed = rlcore("run", "-c", "run.toml")
    assert status == 0, printed
    (module,) = [module for module in sys.modules.values() if getattr(module, "__file__", None) == str(mine)]
    classes = {"chat format", "tool parser", "engine", "sampler", "strategy", "trainer"}
    functions = {"reward", "group reward", "advantage scale=0.5", "loss", "model"}
    assert classes | functions | {"environment loud=True", "dataset", "tracker"} == module.USED


@pytest.mark.parametrize(
    ("overrides", "key", "origin"),
    [
        (["algorithm.loss=mine.py:my_loss", "algorithm.loss.knee=2"], "algorithm.loss.knee", "algorithm.loss.knee=2"),
        (["algorithm.advantage=mine.py:Grpo", "algorithm.advantage.scal=2"], "algorithm.advantage.scal", ".scal=2"),
        (["algorithm.advantage=mine.py:Grpo", "algorithm.advantage.scale=x"], "algorithm.advantage.scale", ".scale=x"),
    ],
)
def test_unknown_algorithm_key_is_rejected(
    overrides: list[str], key: str, origin: str, mine: Path, rlcore: Call
) -> None:
    status, printed = rlcore("run", "--dry-run", "-v", "-p", "gsm8k-tools", *overrides)
    assert status == 2
    assert f" {key}" in printed
    assert f"{origin}\n" in printed


def test_tool_can_be_in_a_file_or_a_module(mine: Path, rlcore: Call) -> None:
    tools = 'environment.tools=["mine.py:lamp", "rl_plugin_gsm8k_tools.calculator:calculator"]'
    assert rlcore("run", "--dry-run", "-v", "-p", "gsm8k-tools", tools)[0] == 0


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("gone.py:Part", ["gone.py"]),
        ("gone_module:Part", ["'gone_module'", "not installed"]),
        ("mine.py:Gone", ["mine.py has no 'Gone'"]),
        ("wrong.py:part", ["must be a {form}", "int"]),
        ("wrong.py:other", ["must be a {form}", "the {other}"]),
        ("raises.py:Part", ["ZeroDivisionError: division by zero", "raises.py:2"]),
        ("exits.py:Part", ["SystemExit: 0", "exits.py:2"]),
        ("mine.py", ["mine.py:NAME"]),
    ],
)
def test_invalid_import_path_is_reported_before_start(
    kind: str, target: str, expected: list[str], mine: Path, rlcore: Call
) -> None:
    form, other = ("function", "class Other") if kind in (*FUNCTIONS, "reward") else ("class", "function other")
    kind_of_other = "class Other: ..." if form == "function" else "def other(): ..."
    Path("wrong.py").write_text(f"part = 7\n{kind_of_other}\nother = {other.split()[1]}\n", encoding="utf-8")
    Path("raises.py").write_text("x = 1\nx / 0\n", encoding="utf-8")
    Path("exits.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    overrides = [key.format(target) for key in KEYS[kind]]
    status, printed = rlcore("run", "-p", "gsm8k-tools", *overrides)
    assert status == 2, printed
    for text in expected:
        assert text.format(form=form, other=other) in printed
    assert KEYS[kind][0].partition("=")[0] in printed
    assert "Traceback" not in printed
    assert not Path("runs").exists()


def test_misspelt_name_gets_a_suggestion(mine: Path, rlcore: Call) -> None:
    assert "did you mean 'Sampler'?" in rlcore("run", "-p", "gsm8k-tools", "sampler.id=mine.py:Samplr")[1]


def test_class_with_missing_methods_is_rejected(mine: Path, rlcore: Call) -> None:
    Path("half.py").write_text("class Half:\n    def reset(self, task, *, seed): ...\n", encoding="utf-8")
    status, printed = rlcore("run", "-p", "gsm8k-tools", "environment.id=half.py:Half", "data.id=gsm8k-tools")
    assert status == 2
    assert "half.py:Half" in printed
    assert "no step or close" in printed


def test_environment_from_a_file_requires_a_dataset(mine: Path, rlcore: Call) -> None:
    Path("run.toml").write_text(RUN.replace('[data]\nid = "mine.py:Words"\n', ""), encoding="utf-8")
    status, printed = rlcore("run", "-c", "run.toml")
    assert status == 2
    assert "data.id=" in printed


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def lamp(on: bool) -> str:\n    return 'done'\n", "docstring"),
        ("def lamp(on: object) -> str:\n    'Switch.'\n    return 'done'\n", "on"),
    ],
)
def test_invalid_tool_function_is_rejected_before_start(source: str, expected: str, mine: Path, rlcore: Call) -> None:
    Path("tools.py").write_text(source, encoding="utf-8")
    status, printed = rlcore("run", "-p", "gsm8k-tools", "environment.tools=tools.py:lamp")
    assert status == 2
    assert expected in printed
    assert not Path("runs").exists()


def test_module_beside_the_run_gets_a_hint(mine: Path, rlcore: Call) -> None:
    assert "mine.py:NAME" in rlcore("run", "-p", "gsm8k-tools", "trainer.id=mine:Trainer")[1]
    Path("uses.py").write_text("import mine\n", encoding="utf-8")
    assert f"PYTHONPATH={mine.parent}" in rlcore("run", "-p", "gsm8k-tools", "trainer.id=uses.py:Trainer")[1]


def test_an_attribute_of_the_wrong_type_is_named(mine: Path, rlcore: Call) -> None:
    mine.write_text(f"{MINE}\n\nclass Listed(Echo):\n    action = ['chat']\n", encoding="utf-8")
    status, printed = rlcore("run", "-p", "gsm8k-tools", "environment.id=mine.py:Listed", "--dry-run", "-v")
    assert status == 2
    assert "an attribute of environment 'mine.py:Listed' has the wrong type" in printed
    assert "action is ['chat']" in printed
