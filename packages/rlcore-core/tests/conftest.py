"""A throwaway installation: a plugin with every kind of part, in pure Python, and nothing else but rlcore-core."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

os.environ.pop("UV_RUN_RECURSION_DEPTH", None)  # messages name commands as without uv
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # inherited from a shell that started the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

PLUGINS = (
    *("aitw", "gem", "gsm8k-tools", "gymnasium", "llm-judge", "mind2web", "robotwin", "string-equal"),
    "visual-search",
)

TOY = '''
from __future__ import annotations
import json
import random
from pathlib import Path
from typing import Any, Literal
import pluggy
from pydantic import BaseModel, ConfigDict, SecretStr
from rlcore import specs
from rlcore.checks import Finding
from rlcore.config.schema import Table
from rlcore.errors import DataError, WriteError
from rlcore.hookspecs import hookimpl, hookspec
from rlcore.runs.checkpoint_folder import write_manifest
from rlcore.types import *

class Owners:
    """The hooks of rlcore-rollout and rlcore-trainer, which a plain installation of rlcore-core lacks."""
    @hookspec
    def rlcore_engines(self): ...
    @hookspec
    def rlcore_samplers(self): ...
    @hookspec
    def rlcore_trainers(self): ...
    @hookspec
    def rlcore_algorithms(self): ...
    @hookspec
    def rlcore_strategies(self): ...

@hookimpl
def rlcore_addhooks(pluginmanager):
    pluginmanager.add_hookspecs(Owners)

class EnvironmentConfig(Table):
    tools: list[str] = ["adder"]
    """Names of tools."""
    max_turns: int = 3
    """Turns of an episode."""
class RewardConfig(Table):
    strict: bool = True
    """Whether case counts."""
    api_key: SecretStr | None = None
class DataConfig(Table):
    train: str = "generated"
    """Where training tasks come from."""
    evaluation: str = "generated"
    count: int = 4
    """How many tasks."""
class PrepareConfig(Table):
    FLAGS = {"output_path": "out", "subset_size": "rows"}
    out: Path
    """File that is written."""
    rows: int = 2
    title: str = ""
    extra: bool = False
class LabelConfig(Table):
    model: str
    """Model that is asked."""
    rows: int = 2
class TrainerConfig(Table):
    learning_rate: float = 1e-3
    """Step size."""
    steps: int = 3
    """How long."""
    tasks_per_step: int = 2
    fail: Literal["no", "bug", "input", "disk"] = "no"
    slow_s: float = 0.0
class AlgorithmConfig(Table):
    advantage: str = "grpo"
    """Advantage estimator."""
    kl: dict[str, float] = {}
class WarmupConfig(Table):
    FIXED = frozenset({"steps"})
    steps: int = 0
    """Supervised steps before."""
class EngineConfig(Table):
    slots: int = 4
    """Sequences at a time."""
class BuilderConfig(Table):
    layers: int = 1

class Environment:
    def __init__(self, config): self.config = config
    def reset(self, task, *, seed): return Observation(messages=task.messages)
    def step(self, action): return Step(terminated=True)
    def close(self): ...
class Engine:
    def generate(self): ...
    def load_weights(self): ...
    def close(self): ...
class Coder(Environment):
    """Declares that it runs code of the model."""
    runs_code = True
    class Config(EnvironmentConfig):
        code: bool = True
        """Whether the model may write code."""
        @property
        def runs_code(self): return self.code
class BoxConfig(Table):
    address: str
    """Where the sandbox is."""
class Box:
    def __init__(self, config, limits): self.config, self.limits = config, limits
    async def open(self, images): ...
    async def close(self): ...
UNUSABLE = {}
def strong_box(config):
    if "strong" in UNUSABLE: return SandboxSupport(reason=UNUSABLE["strong"], fix="install namespaces")
    return SandboxSupport(guarantees=("no network", "no files"))
def weak_box(config):
    if "weak" in UNUSABLE: return SandboxSupport(reason=UNUSABLE["weak"])
    return SandboxSupport(guarantees=("no network",), lacks=("files can be read",))
def remote_box(config):
    found = config.address if config else "no address"
    return SandboxSupport() if found == "here" else SandboxSupport(reason=found, fix="set an address")
class Dataset:
    def __init__(self, config):
        self.config = config
    def tasks(self, split):
        source = self.config.train if split == "train" else self.config.evaluation
        if source != "generated" and not Path(source).is_file():
            raise DataError(f"there is no data file {source}", where=f"data.{split}", fix="rlcore data prepare toy")
        return [Task(id=f"{split}-{n}", messages=(Message(role="user", content=f"{n}?"),), fields={"answer": n})
                for n in range(self.config.count)]
    def demonstrations(self, count, *, seed): return []
    def texts(self): return ["0?", "1?"]
def prepare(config):
    config.out.write_text("{}\\n" * config.rows)
    given = {"title": config.title} if config.title else {}
    return {"rows": config.rows, "file": str(config.out), **given, **({"extra": True} if config.extra else {})}
def label(config):
    return {"labelled": config.rows, "model": config.model}
class Exact:
    def __init__(self, config): self.config = config
    async def __call__(self, trajectory, task): return 1.0
class Length:
    async def __call__(self, group): return [0.5] * len(group.trajectories)
def adder(a: int, b: int) -> int:
    """Add."""
    return a + b
def build(folder, texts, seed, config):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text(json.dumps({"made": [seed, sorted(texts), config.layers]}))
class Sampler:
    def __init__(self, run, source, report):
        assert (source.folder / "config.json").is_file()
        self.run, self.source = run, source
    def collect(self, request):
        return [Group(task=task, trajectories=tuple(
            Trajectory(task_id=task.id, sibling=n, segments=(Segment(
                token_ids=(1, 2), loss_mask=(False, True), logprobs=(0.0, -0.5),
                turns=(Turn(kind="observation", start=0, end=1, messages=task.messages),
                       Turn(kind="policy", start=1, end=2, messages=(Message(role="assistant", content="hi"),)))),),
                reward=float((place + n) % 2),
                rewards={"exact": RewardResult(value=float((place + n) % 2))})
            for n in range(request.group_size))) for place, task in enumerate(request.tasks)]
    def update_weights(self, source): ...
    def close(self): ...
class Weights:
    adapter = None
    def __init__(self, folder): self.folder, self.version = folder, 0
    def weights(self, adapter_only=False): return None
def look_at(run):
    if run.options("trainer").steps == 1: yield Finding(status="warn", text="one step is little")
class Trainer:
    def __init__(self, run): self.run = run
    def train(self):
        import os, signal, time
        run, options = self.run, self.run.options("trainer")
        if options.fail == "bug": raise ZeroDivisionError("a bug")
        if options.fail == "input": raise DataError("row 3 has no answer")
        if options.fail == "disk": raise WriteError("the checkpoint cannot be written", found="no space")
        sampler = run.sampler(Weights(run.model_folder()))
        first = int(run.resume_from.name) if run.resume_from else 0
        metrics = {}
        for step in range(first + 1, options.steps + 1):
            request = RolloutRequest(tasks=run.dataset.tasks("train")[:2], group_size=2, seed=0, step=step)
            groups = sampler.collect(request)
            run.record(step, "train", groups)
            metrics = {"reward/mean": step / 10, "accuracy": step / 10, "kl/mean": 0.001, "loss/total": -0.1,
                       "tokens/sampled": 8, "time/step_s": 0.1, "evaluation/accuracy": min(step, 4) / 10}
            run.log(step, metrics)
            temporary = run.directory.checkpoints / f".{step}"
            (temporary / "model").mkdir(parents=True, exist_ok=True)
            build(temporary / "model", [], step, BuilderConfig())
            (temporary / "state").write_text(f"after step {step}")
            write_manifest(temporary, step)
            path = run.directory.checkpoints / f"{step:06d}"
            temporary.rename(path)
            run.checkpoint_saved(step, path)
            if options.slow_s:
                print("STEP", flush=True)
                time.sleep(options.slow_s)
            if run.stop_requested: break
        return metrics

class Joined:
    """One of several processes."""
    def __init__(self, is_main): self.is_main, self.ends = is_main, []
    def from_main(self, make): return make() if self.is_main else (None, [], Path.cwd())
    def end(self, error): self.ends.append(error)
JOINED, STARTED = None, []
def launch(run, arguments):
    return JOINED or (lambda: STARTED.append(arguments) or 7)

TOLD = []
@hookimpl
def rlcore_run_started(run): TOLD.append(("started", None))
@hookimpl
def rlcore_rollouts_scored(run, step, purpose, groups): TOLD.append((purpose, step))
@hookimpl
def rlcore_step_finished(run, step, metrics): TOLD.append(("step", step))
@hookimpl
def rlcore_checkpoint_saved(run, step, path): TOLD.append(("checkpoint", step))
@hookimpl
def rlcore_run_finished(run, error): TOLD.append(("finished", type(error).__name__ if error else None))

M = "toy_rl"
@hookimpl
def rlcore_environments():
    yield specs.EnvironmentSpec(id="toy", target=f"{M}:Environment", config=f"{M}:EnvironmentConfig")
@hookimpl
def rlcore_datasets():
    yield specs.DatasetSpec(id="toy", target=f"{M}:Dataset", config=f"{M}:DataConfig", summary="numbers",
                            prepare=f"{M}:prepare", prepare_config=f"{M}:PrepareConfig",
                            label=f"{M}:label", label_config=f"{M}:LabelConfig")
@hookimpl
def rlcore_rewards():
    yield specs.RewardSpec(id="exact", target=f"{M}:Exact", config=f"{M}:RewardConfig")
    yield specs.RewardSpec(id="length", target=f"{M}:Length", scope="group", maximum=2.0)
@hookimpl
def rlcore_tools(): yield specs.ToolSpec(id="adder", target=f"{M}:adder")
@hookimpl
def rlcore_recipes():
    yield specs.RecipeSpec(id="toy/default", target=f"{M}_recipes:default.toml")
    yield specs.RecipeSpec(id="toy/other", target=f"{M}_recipes:other.toml")
@hookimpl
def rlcore_engines():
    yield specs.EngineSpec(id="torch", target=f"{M}:Engine", config=f"{M}:EngineConfig")
    yield specs.EngineSpec(id="remote", target=f"{M}:Engine", trains=False)
    yield specs.EngineSpec(id="absent", target=f"{M}:Engine", needs=("no-such-distribution-here>=2",))
@hookimpl
def rlcore_sandboxes():
    yield specs.SandboxSpec(id="weak", target=f"{M}:Box", strength=10, available=f"{M}:weak_box")
    yield specs.SandboxSpec(id="strong", target=f"{M}:Box", strength=90, available=f"{M}:strong_box")
    yield specs.SandboxSpec(id="remote", target=f"{M}:Box", config=f"{M}:BoxConfig", available=f"{M}:remote_box")
@hookimpl
def rlcore_samplers(): yield specs.SamplerSpec(id="local", target=f"{M}:Sampler")
@hookimpl
def rlcore_strategies():
    yield specs.StrategySpec(id="single", target=f"{M}:Environment")
    yield specs.StrategySpec(id="many", target=f"{M}:Environment", launch=f"{M}:launch")
@hookimpl
def rlcore_algorithms(): yield specs.AlgorithmSpec(id="grpo", target=f"{M}:build")
@hookimpl
def rlcore_models(): yield specs.ModelBuilderSpec(id="tiny", target=f"{M}:build", config=f"{M}:BuilderConfig")
@hookimpl
def rlcore_trainers():
    yield specs.TrainerSpec(id="policy-gradient", target=f"{M}:Trainer", config=f"{M}:TrainerConfig",
        tables=(("algorithm", f"{M}:AlgorithmConfig"), ("warmup", f"{M}:WarmupConfig")), check=f"{M}:look_at")
'''

DEFAULT = """\
summary = "numbers"

[model]
path = "builtin:tiny"

[environment]
id = "toy"
max_turns = 2

[[reward]]
id = "exact"
weight = 1.0

[[reward]]
id = "length"
weight = 0

[trainer]
id = "policy-gradient"
learning_rate = 3e-4

[warmup]
steps = 1
"""


class Toy:
    """Where the plugin lies, and where the test stands."""

    def __init__(self, site: Path, work: Path) -> None:
        self.site, self.work = site, work

    def recipe(self, name: str, text: str) -> None:
        """Write a recipe into the plugin's package."""
        (self.site / "toy_rl_recipes" / f"{name}.toml").write_text(textwrap.dedent(text))

    def environment(self) -> dict[str, str]:
        """For a command in a process of its own."""
        known = filter(None, [str(self.site), os.environ.get("PYTHONPATH")])
        return {**os.environ, "PYTHONPATH": os.pathsep.join(known)}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    """Stand in an empty folder, with the throwaway plugin installed and every other one but rlcore-core disabled."""
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    (site / "toy_rl_recipes").mkdir(parents=True)
    (site / "toy_rl_recipes" / "__init__.py").touch()
    (site / "toy_rl.py").write_text(TOY)
    info = site / "toy_rl-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-rl\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[rlcore.plugins]\ntoy = toy_rl\n")
    monkeypatch.chdir(work)
    monkeypatch.syspath_prepend(str(site))
    others = "rlcore-control,rlcore-models,rlcore-rollout,rlcore-trainer,rlcore-sandbox,rlcore-merge,rlcore-compat"
    plugins = ",".join(f"rl-plugin-{name}" for name in PLUGINS)
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", f"{others},{plugins}")
    for name in ("toy_rl", "toy_rl_recipes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    toy = Toy(site, work)
    toy.recipe("default", DEFAULT)
    toy.recipe("other", DEFAULT)
    yield toy
    for name in ("toy_rl", "toy_rl_recipes"):
        sys.modules.pop(name, None)


class Outcome(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str


@pytest.fixture
def rlcore(toy: Toy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Call the command in this process: ``rlcore("run", "-p", "toy")``."""
    from rlcore.cli import main

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["rlcore", *map(str, arguments)])
        capsys.readouterr()
        status = main()
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return call


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Puts a distribution with one plugin on ``sys.path``: ``install("acme-rl", source)``."""
    modules_before = set(sys.modules)
    monkeypatch.delenv("RLCORE_DISABLE_PLUGINS", raising=False)
    monkeypatch.delenv("RLCORE_TRACE_PLUGINS", raising=False)

    def write(
        distribution: str,
        source: str | None,
        *,
        plugin: str | None = None,
        requires: tuple[str, ...] = (),
        entry_points: str | None = None,
    ) -> None:
        module = distribution.replace("-", "_") + "_plugin"
        information = tmp_path / f"{distribution.replace('-', '_')}-1.2.dist-info"
        information.mkdir()
        metadata = ["Metadata-Version: 2.4", f"Name: {distribution}", "Version: 1.2"]
        metadata += [f"Requires-Dist: {text}" for text in requires]
        (information / "METADATA").write_text("\n".join(metadata) + "\n", encoding="utf-8")
        default = f"[rlcore.plugins]\n{plugin or distribution} = {module}\n"
        (information / "entry_points.txt").write_text(entry_points or default, encoding="utf-8")
        if source is not None:
            (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)

    yield write
    for name in set(sys.modules) - modules_before:
        if name.endswith("_plugin"):
            del sys.modules[name]
