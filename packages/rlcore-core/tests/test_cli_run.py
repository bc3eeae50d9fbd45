"""``rlcore run``, ``eval``, ``config`` and ``data`` as a person calls them, on a throwaway plugin."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.rollouts.records import read_groups
from rlcore.runs.directory import read_metrics
from rlcore.session.session import RunSession

Call = Callable[..., Any]


def only_run() -> Path:
    (path,) = Path("runs").iterdir()
    return path


def test_run_trains_and_documents_itself_in_its_directory(rlcore: Call) -> None:
    done = rlcore("run", "-p", "toy", "seed=4", "observers=[toy]")
    assert done.status == 0, done.err
    path = only_run()
    lines = done.out.splitlines()
    assert lines[0] == "recipe    toy/default (toy-rl 0.3): numbers"
    assert lines[1].startswith(
        "settings  policy-gradient · grpo · torch engine · device auto · 8 trajectories × 2 tasks"
    )
    assert lines[-2:] == [
        f"best      {path}/checkpoints/000003 (of the saved checkpoints)",
        f"next      rlcore eval {path}/checkpoints/000003",
    ]
    assert [line["step"] for line in read_metrics(path / "metrics.jsonl")] == [1, 2, 3]
    assert (path / "output.log").read_text() == done.out
    assert len(list(read_groups(path / "rollouts" / "train-000002.jsonl.gz"))) == 2
    assert (path / "model" / "tokenizer.json").is_file()
    toy = sys.modules["toy_rl"]
    steps = [("train", 1), ("step", 1), ("checkpoint", 1)]
    assert toy.TOLD[:4] == [("started", None), *steps]
    assert toy.TOLD[-1] == ("finished", None)


def test_dry_run_prints_every_value_and_starts_nothing(rlcore: Call) -> None:
    done = rlcore("run", "-p", "toy", "--dry-run", "-v", "trainer.steps=7")
    assert done.status == 0, done.err
    tree = tomllib.loads(done.out)
    assert (tree["trainer"]["steps"], tree["rollout"]["torch"]["slots"]) == (7, 4)
    assert "# command line: trainer.steps=7" in done.out
    assert list(Path().iterdir()) == []
    Path("again.toml").write_text(done.out, encoding="utf-8")
    assert tomllib.loads(rlcore("run", "-r", "again.toml", "--dry-run", "-v").out) == tree


def test_dry_run_begins_with_a_verdict_in_one_line(rlcore: Call) -> None:
    out = rlcore("run", "-p", "toy", "--dry-run").out
    assert out.startswith("# verdict   ready")
    assert "[trainer]" not in out
    assert "[trainer]" in rlcore("run", "-p", "toy", "--dry-run", "-v").out


@pytest.mark.parametrize("folder", ["taken.txt/runs", "taken.txt"])
def test_dry_run_rejects_an_unusable_folder_of_runs(rlcore: Call, folder: str) -> None:
    Path("taken.txt").touch()
    errors = [rlcore("run", "-p", "toy", f"runs={folder}", *dry) for dry in ([], ["--dry-run", "-v"])]
    assert [done.status for done in errors] == [2, 2]
    assert errors[0].err == errors[1].err
    assert [path.name for path in Path().iterdir()] == ["taken.txt"]


@pytest.mark.parametrize("raised", ["DataError('row 3 has no answer')", "ZeroDivisionError('a bug')"])
def test_dry_run_reports_what_the_trainer_rejects(rlcore: Call, raised: str) -> None:
    lines = [
        "import toy_rl",
        "from rlcore.errors import DataError",
        "class Mine(toy_rl.Trainer):",
        "    Config = toy_rl.TrainerConfig",
        "    tables = (('algorithm', 'toy_rl:AlgorithmConfig'), ('warmup', 'toy_rl:WarmupConfig'))",
        "    def __init__(self, run):",
        f"        raise {raised}",
    ]
    Path("mine.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    dry, done = (rlcore("run", "-p", "toy", "trainer.id=mine.py:Mine", *more) for more in (["--dry-run", "-v"], []))
    assert dry.status == done.status != 0
    assert dry.err.splitlines()[1].partition("; the trace")[0] in done.err


def test_given_model_is_not_warmed_up_unless_asked(rlcore: Call) -> None:
    Path("model").mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        Path("model", name).write_text("{}", encoding="utf-8")

    def steps(*arguments: str) -> int:
        shown = rlcore("config", "show", "-p", "toy", *arguments)
        assert shown.status == 0, shown.err
        return int(tomllib.loads(shown.out)["warmup"]["steps"])

    assert steps() == 1
    assert steps("model=model") == 0
    assert steps("model=builtin:tiny") == 1
    assert steps("model=model", "warmup.steps=2") == steps("warmup.steps=2", "model=model") == 2
    Path("mine.toml").write_text("[model]\npath = 'model'\n[warmup]\nsteps = 3\n", encoding="utf-8")
    assert steps("-c", "mine.toml") == 3
    origin = rlcore("config", "show", "-p", "toy", "model=model", "--origin").out
    assert "the model is given and trained as it is" in origin


@pytest.mark.parametrize(("word", "status"), [("", 2), ("quantizes = True", 0)])
def test_quantised_base_needs_a_trainer_that_supports_it(rlcore: Call, word: str, status: int) -> None:
    lines = [
        "import toy_rl",
        "class Mine(toy_rl.Trainer):",
        "    Config = toy_rl.TrainerConfig",
        f"    {word or 'pass'}",
    ]
    lines += ["    tables = (('algorithm', 'toy_rl:AlgorithmConfig'), ('warmup', 'toy_rl:WarmupConfig'))"]
    Path("mine.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = rlcore("run", "-p", "toy", "--dry-run", "-v", "trainer.id=mine.py:Mine", "model.quantization=nf4")
    assert done.status == status, done.err
    assert ("does not support model.quantization" in done.err) == (status == 2)


def test_notes_are_printed_first_and_in_a_dry_run(rlcore: Call) -> None:
    dry = rlcore("run", "-p", "toy", "--dry-run", "-v", "trainer.steps=1").out
    assert "\n# note: one step is little\n" in dry
    assert tomllib.loads(dry)["trainer"]["steps"] == 1
    said = rlcore("run", "-p", "toy", "trainer.steps=1").out.splitlines()
    assert said[:5].count("note      one step is little") == said.count("note      one step is little") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-p", "toy", "trainer.step=1", "rollout.group_size=x"], "2 problems in the run's configuration"),
        (["-p", "toi"], "did you mean 'toy'?"),
        ([], "--plugin NAME"),
        (["-p", "toy", "rollout.engine=absent"], "pip install 'no-such-distribution-here>=2'"),
        (["-p", "toy", "model.quantization=nf4"], "the trainer 'policy-gradient' does not support model.quantization"),
        (["-p", "toy", "lora.rank=4"], "unknown key  lora"),
        (["-p", "toy", "rollout.engine=remote"], "does not sample from the weights of the trainer"),
        (["-p", "toy", "data.train=none.jsonl"], "there is no data file none.jsonl"),
        (["-p", "toy", "data.count=0"], "the data has no tasks to train on"),
        (["-p", "toy", 'environment.tools=["adde"]'], "did you mean 'adder'?"),
        (["-p", "toy", "algorithm.advantage=grp"], "not found    algorithm.advantage = 'grp'"),
        (["-p", "toy", "model=nowhere"], "there is no model folder nowhere"),
        (["-p", "toy", "model=.."], "has no config.json and no tokenizer.json"),
        (["-p", "toy", "-c", "none.toml"], "there is no configuration file none.toml"),
        (["-p", "toy", "runs=/proc", "--dry-run", "-v"], "cannot write to the folder of runs /proc"),
        (["--resume", "nowhere"], "cannot resume from nowhere"),
        (["--resume", "nowhere", "-p", "toy"], "remove -p and -r"),
        (["-p", "toy", "--no-such-option"], "No such option"),
    ],
)
def test_bad_input_exits_with_2_and_writes_nothing(rlcore: Call, arguments: list[str], expected: str) -> None:
    done = rlcore("run", *arguments)
    assert done.status == 2
    assert expected in done.err
    assert "Traceback" not in done.err
    assert not Path("runs").exists()


def test_overrides_with_a_trainer_need_no_recipe(rlcore: Call) -> None:
    given = ("run", "trainer.id=policy-gradient", "model=builtin:tiny", "name=mine")
    done = rlcore(*given)
    assert done.status == 2
    assert "missing key  environment" in done.err
    done = rlcore(*given, "environment.id=toy", 'reward=[{id="exact"}]')
    assert done.status == 0, done.err
    assert done.out.startswith("recipe    no recipe\n")
    assert len(read_metrics(Path("runs/mine/metrics.jsonl"))) == 3


def test_existing_run_directory_is_rejected_before_the_run(rlcore: Call) -> None:
    assert rlcore("run", "-p", "toy", "name=mine").status == 0
    before = (Path("runs/mine/metrics.jsonl")).read_bytes()
    done = rlcore("run", "-p", "toy", "name=mine")
    assert done.status == 2
    assert "resume it with --resume runs/mine" in done.err
    assert done.out == ""
    assert Path("runs/mine/metrics.jsonl").read_bytes() == before


def test_failed_run_keeps_its_log_and_prints_its_path(rlcore: Call) -> None:
    assert rlcore("run", "-p", "toy", "trainer.fail=bug", "name=bug", "observers=[toy]").status == 70
    assert rlcore("run", "-p", "toy", "name=input").status == 0
    done = rlcore("run", "--resume", "runs/input", "trainer.fail=input")
    assert (done.status, "error: row 3 has no answer" in done.err) == (2, True)
    assert "the log is runs/input/output.log" in done.err
    assert "failed: DataError: row 3" in Path("runs/input/output.log").read_text(encoding="utf-8")
    assert "Traceback" in Path("runs/bug/output.log").read_text(encoding="utf-8")
    assert ("finished", "ZeroDivisionError") in sys.modules["toy_rl"].TOLD


def test_configuration_of_a_failed_resume_is_not_kept(rlcore: Call) -> None:
    rlcore("run", "-p", "toy", "name=mine")
    config = Path("runs/mine/config.toml")
    before = config.read_text(encoding="utf-8")
    for folder in ("runs/mine", "runs/mine/checkpoints/000002"):
        done = rlcore("run", "--resume", folder, "trainer.fail=input", "trainer.steps=5")
        assert done.status == 2
        assert config.read_text(encoding="utf-8") == before
    assert rlcore("run", "--resume", "runs/mine", "trainer.steps=4").status == 0
    assert [line["step"] for line in read_metrics(Path("runs/mine/metrics.jsonl"))] == [1, 2, 3, 4]


def test_finished_run_continues_with_more_steps(rlcore: Call) -> None:
    rlcore("run", "-p", "toy", "name=mine", "rollout.group_size=3")
    done = rlcore("run", "--resume", "runs/mine", "trainer.steps=5")
    assert done.status == 0, done.err
    assert "resumed   from step 3" in done.out
    assert [line["step"] for line in read_metrics(Path("runs/mine/metrics.jsonl"))] == [1, 2, 3, 4, 5]
    config = Path("runs/mine/config.toml").read_text(encoding="utf-8")
    assert tomllib.loads(config)["rollout"]["group_size"] == 3
    assert "# command line: rollout.group_size=3" in config
    done = rlcore("run", "--resume", "runs/mine/checkpoints/000002", "trainer.steps=3")
    assert "resumed   from step 2" in done.out
    assert [line["step"] for line in read_metrics(Path("runs/mine/metrics.jsonl"))] == [1, 2, 3]


def test_run_of_another_version_prints_a_note(rlcore: Call) -> None:
    rlcore("run", "-p", "toy", "name=mine")
    path = Path("runs/mine/environment.json")
    path.write_text(path.read_text(encoding="utf-8").replace("toy-rl 0.3", "toy-rl 0.2"), encoding="utf-8")
    done = rlcore("run", "--resume", "runs/mine", "trainer.steps=4")
    assert "changed   toy toy-rl 0.2 → toy-rl 0.3" in done.out


def test_json_is_the_only_thing_on_stdout(rlcore: Call) -> None:
    done = rlcore("run", "-p", "toy", "--json")
    found = json.loads(done.out)
    assert found["metrics"]["accuracy"] == 0.3
    assert found["best"].endswith("000003")


def start(toy: Any, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rlcore", "run", *arguments]
    return subprocess.Popen(
        command, env=toy.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def test_sigint_finishes_the_step_and_the_second_one_interrupts(toy: Any) -> None:
    process = start(toy, "-p", "toy", "trainer.steps=50", "trainer.slow_s=0.3", "name=mine")
    assert process.stdout is not None
    for line in process.stdout:
        if line == "STEP\n":
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "stopping  after this step" in out
    assert "rlcore run --resume runs/mine" in out
    last = read_metrics(Path("runs/mine/metrics.jsonl"))[-1]["step"]
    assert last < 50
    process = start(toy, "--resume", "runs/mine", "trainer.slow_s=20")
    assert process.stdout is not None
    sent = 0
    for line in process.stdout:
        if line == "STEP\n" or line.startswith("stopping"):
            time.sleep(1.1 * sent)  # sooner, it would be the same signal again
            process.send_signal(signal.SIGINT)
            sent += 1
        if sent == 2:
            break
    out, err = process.communicate(timeout=15)
    assert process.returncode == 130
    assert "rlcore run --resume runs/mine" in err
    assert read_metrics(Path("runs/mine/metrics.jsonl"))[-1]["step"] == last + 1


def test_eval_prints_accuracy_with_an_interval(rlcore: Call) -> None:
    rlcore("run", "-p", "toy", "name=mine", "data.count=6")
    done = rlcore("eval", "runs/mine", "trackers.use=[]")
    assert done.status == 0, done.err
    assert "runs/mine/checkpoints/000003/model" in done.out
    assert "0.500   (95 % interval 0.188 to 0.812)" in done.out
    assert "6 tasks" in done.out
    done = rlcore("eval", "runs/mine/checkpoints/000001", "--json", "evaluation.samples=4")
    found = json.loads(done.out)
    assert (found["accuracy"], found["pass_at_k"]["4"], found["tasks"]) == (0.5, 1.0, 6)
    assert found["model"] == "runs/mine/checkpoints/000001"


def test_eval_of_a_builtin_model_reports_that_it_is_untrained(rlcore: Call) -> None:
    done = rlcore("eval", "-p", "toy", "evaluation.tasks=2")
    assert done.status == 0, done.err
    assert "newly built and untrained" in done.out
    assert list(Path().iterdir()) == []


def test_eval_compares_two_settings_of_the_same_model(rlcore: Call) -> None:
    arguments = ("eval", "-p", "toy", "evaluation.tasks=6", "--compare", "evaluation.success=0.0")
    done = rlcore(*arguments)
    assert done.status == 0, done.err
    assert "difference  -0.500: accuracy 0.500, and 1.000 with evaluation.success=0.0" in done.out
    found = json.loads(rlcore(*arguments, "--json").out)
    assert (found["accuracy"], found["compared"]["accuracy"]) == (0.5, 1.0)
    assert found["compared"]["overrides"] == ["evaluation.success=0.0"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-p", "toy", "--compare", "data.count"], "--compare needs a setting"),
        (["-p", "toy", "--compare", "evaluation.sample=3"], "did you mean evaluation.samples ?"),
        (["-p", "toy", "model=nowhere"], "there is no model folder nowhere"),
        (["nowhere"], "there is no run or model folder nowhere"),
        (["-p", "toy", "--split", "test", "data.count=0"], "no tasks to evaluate"),
        (["-p", "toy", "evaluation.sample=3"], "did you mean evaluation.samples ?"),
    ],
)
def test_eval_of_bad_input_exits_with_2(rlcore: Call, arguments: list[str], expected: str) -> None:
    done = rlcore("eval", *arguments)
    assert (done.status, expected in done.err) == (2, True), done.err


def test_config_show_schema_and_diff(rlcore: Call) -> None:
    shown = rlcore("config", "show", "-p", "toy", "seed=3").out
    assert tomllib.loads(shown)["seed"] == 3
    assert "#" not in shown
    assert "# recipe toy/default:4" in rlcore("config", "show", "-p", "toy", "--origin").out
    assert json.loads(rlcore("config", "show", "-p", "toy", "--json", "--origin").out)["seed"]["origin"] == "default"
    rows = rlcore("config", "schema", "-p", "toy").out
    assert "environment.max_turns: int = 3\n    Turns of an episode.\n" in rows
    assert 'trainer.id: string = "policy-gradient"' in rows
    assert "rollout.max_context_tokens: int | null\n" in rows
    schema = json.loads(rlcore("config", "schema", "-p", "toy", "--json").out)
    assert schema["$defs"]["trainer"]["properties"]["learning_rate"]["description"] == "Step size."
    assert schema["properties"]["trainer"]["$ref"] == "#/$defs/trainer"
    for name, seed in (("a", 1), ("b", 2)):
        rlcore("run", "-p", "toy", f"name={name}", f"seed={seed}")
    assert "seed  1 → 2" in rlcore("config", "diff", "runs/a", "runs/b").out
    assert rlcore("config", "diff", "runs/a", "runs/c").status == 2


def test_data_list_prepare_and_show(rlcore: Call) -> None:
    listed = [" ".join(line.split()) for line in rlcore("data", "list").out.splitlines()]
    assert "toy numbers (prepare, label, show; toy-rl 0.3)" in listed  # the longest name sets the width
    done = rlcore("data", "prepare", "toy", "out=x.jsonl", "rows=3")
    assert (done.out, Path("x.jsonl").read_text(encoding="utf-8")) == ("rows  3\nfile  x.jsonl\n", "{}\n{}\n{}\n")
    assert "rows: int = 2" in rlcore("data", "prepare", "toy", "--help-options").out
    assert "missing key  out" in rlcore("data", "prepare", "toy").err
    assert "did you mean rows ?" in rlcore("data", "prepare", "toy", "out=x", "row=3").err
    assert "did you mean 'toy'?" in rlcore("data", "prepare", "toi").err
    assert "did you mean 'toy'?" in rlcore("data", "show", "toi").err
    assert "there is no file, run or dataset 'runs/nothing'" in rlcore("data", "show", "runs/nothing").err
    assert "images" not in rlcore("data", "show", "toy").out
    assert "row 2\n  id: train-1\n" in rlcore("data", "show", "toy", "-n", "2").out
    rlcore("run", "-p", "toy", "name=mine")
    shown = rlcore("data", "show", "runs/mine/rollouts/train-000001.jsonl.gz", "-n", "1").out
    assert "trajectory 1 of 2: done, 2 tokens (1 sampled), reward 0\n  rewards of the other trajectories: 1\n" in shown
    assert "assistant: hi" in shown
    newest = rlcore("data", "show", "runs/mine", "-n", "1").out
    assert newest.startswith("runs/mine/rollouts/")
    assert "assistant: hi" in newest
    Path("empty").mkdir()
    assert "empty has no stored rollouts" in rlcore("data", "show", "empty").err


def test_data_prepare_accepts_flags_of_other_programs(rlcore: Call) -> None:
    done = rlcore("data", "prepare", "toy", "--output_path", "x.jsonl", "--subset-size=3", "--extra", "--title", "1")
    assert (done.status, done.out) == (0, "rows   3\nfile   x.jsonl\ntitle  1\nextra  True\n")
    mixed = rlcore("data", "prepare", "toy", "title=t", "--extra", "--json", "--out", "y=1.jsonl", "--rows", "1")
    assert json.loads(mixed.out) == {"rows": 1, "file": "y=1.jsonl", "title": "t", "extra": True}


def test_unknown_and_incomplete_flags_are_reported_together(rlcore: Call) -> None:
    done = rlcore("data", "prepare", "toy", "--output_pat", "x", "--rows", "--title", "rows")
    assert done.status == 2
    assert "did you mean '--output_path'?" in done.err
    assert "--rows VALUE" in done.err
    wrong = rlcore("data", "prepare", "toy", "--out", "x", "--rows", "many")
    assert (wrong.status, "command line: --rows many" in wrong.err) == (2, True)
    assert rlcore("data", "prepare", "toy", "x").status == 2


def test_data_label_asks_the_dataset_and_prints_its_summary(rlcore: Call) -> None:
    done = rlcore("data", "label", "toy", "model=large", "rows=3")
    assert (done.status, done.out) == (0, "labelled  3\nmodel     large\n")
    assert json.loads(rlcore("data", "label", "toy", "model=large", "--json").out)["model"] == "large"
    assert "model: str" in rlcore("data", "label", "toy", "--help-options").out
    assert "missing key  model" in rlcore("data", "label", "toy").err


def test_dataset_without_labels_names_those_that_have_some(rlcore: Call) -> None:
    done = rlcore("data", "label", "chat")
    assert done.status == 2
    assert "the dataset 'chat' has nothing to label" in done.err
    assert "rlcore data label toy" in done.err


def test_data_show_names_a_bad_line_and_escapes_control_characters(rlcore: Call) -> None:
    Path("a.jsonl").write_text('{"question": "\\u001b[2J1+1?"}\n{"question": \n', encoding="utf-8")
    done = rlcore("data", "show", "a.jsonl")
    assert done.status == 2
    assert "a.jsonl:2" in done.err
    assert "question: \\x1b[2J1+1?" in done.out
    assert "there is no file b.jsonl" in rlcore("data", "show", "b.jsonl").err


@pytest.mark.parametrize(
    "command", ["run", "eval", "data", "data list", "data prepare", "data label", "data show", "config show"]
)
def test_help_has_examples(rlcore: Call, command: str) -> None:
    done = rlcore(*command.split(), "--help")
    assert done.status == 0
    assert "Example" in done.out


def test_help_examples_write_data_to_data_files(rlcore: Call) -> None:
    for command in ("data", "data prepare"):
        lines = rlcore(*command.split(), "--help").out.splitlines()
        outs = [word for line in lines if " prepare " in line for word in line.split() if word.startswith("out=")]
        assert outs, command
        assert all(Path(word).suffix == ".jsonl" for word in outs)


def test_run_can_be_created_from_plain_values(toy: Any) -> None:
    values = {"model": {"path": "builtin:tiny"}, "environment": {"id": "toy"}, "reward": [{"id": "length"}]}
    run = RunSession.create(values)
    assert run.options("environment").max_turns == 3
    assert run.options("warmup").steps == 0
    assert type(run.environment()).__name__ == "Environment"
    (reward,) = run.rewards()
    assert (reward.scope, reward.maximum, reward.weight) == ("group", 2.0, 1.0)
    assert run.dataset is run.dataset
    folder = run.model_folder()
    assert (folder / "config.json").is_file()
    run.request_stop()
    assert run.stop_requested
    run.finished()
    assert not folder.exists()


def test_failing_tracker_does_not_end_the_run(toy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        def log(self, step: int, metrics: Any) -> None:
            raise ConnectionError("no network")

        def close(self) -> None: ...

    values = {"model": {"path": "builtin:tiny"}, "environment": {"id": "toy"}, "reward": [{"id": "length"}]}
    run = RunSession.create(values)
    run.trackers.append(("broken", Broken()))
    run.log(1, {})
    run.log(2, {})
    assert capsys.readouterr().out.count("tracker 'broken' failed") == 1
    run.finished()


def test_unavailable_hub_id_is_reported_with_a_fix(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlcore.errors import NotInstalledError

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    values = {"model": {"path": "no/such-model"}, "environment": {"id": "toy"}, "reward": [{"id": "length"}]}
    with pytest.raises(NotInstalledError, match="hub id"):
        RunSession.create(values).model_folder()
