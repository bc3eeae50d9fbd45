"""Visual search trains on real photos, with code in the sandbox, the published tokenizer and a judge behind HTTP."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_server import Endpoint, Reply, failing, reply
from judging_server import parts
from PIL import Image
from qwen_folders import qwen_folder
from rl_plugin_visual_search.config import DataConfig
from rl_plugin_visual_search.dataset import VisualSearchData
from rl_plugin_visual_search.grammar import answer_turn, code_turn
from rl_plugin_visual_search.observations import result_observation, shown_pictures
from rlcore import CodeResult, Message, TextPart
from rlcore.cli import main
from rlcore.rollouts.records import read_groups

DATA = os.environ.get("RLCORE_DATA")
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(DATA is None, reason="RLCORE_DATA is not set"),
]
QUESTIONS = Path(str(DATA)) / "visual_search" / "deepeyes_schema_sample.parquet"
"""Three questions about large photos and nine about photos of GQA."""
SIBLINGS = 3
BOX = (0, 0, 224, 168)
ANSWERS = ("zebra", "lion")
"""None is the answer of a question, which would be right without a judge."""
CONFIG = f"""
[model]
path = "model"
images = {{ min_pixels = 12544, max_pixels = 12544 }}
[environment]
id = "visual-search"
max_turns = 2
[[reward]]
id = "llm-judge"
api_key_env = ""
examples = "visual-search"
question_field = "question"
aliases_field = "aliases"
extract = "answer-box"
max_retries = 0
[[reward]]
id = "visual-search-tools"
accuracy = "llm-judge"
weight = 0.1
[rollout]
group_size = {SIBLINGS}
max_new_tokens = 64
temperature = 0.5                # fewer wrong forms; both answers stay equally likely
stop = ["</code>"]
[algorithm]
advantage = "grpo"
loss = "clip"
[warmup]
steps = 100
demonstrations_per_step = 4
learning_rate = 5e-3
[trainer]
id = "policy-gradient"
steps = 2
tasks_per_step = 6
[evaluation]
every = 0
[checkpoint]
every = 0
"""


def verdict(body: dict[str, Any]) -> Reply:
    """A zebra is right. The judge fails for the question about a flag."""
    case = parts(body)
    if "flag" in case["question"]:
        return failing(500)
    return reply(f"Judgement: {int(case['answer'] == ANSWERS[0])}")


@pytest.fixture
def judge() -> Iterator[Endpoint]:
    server = Endpoint()
    server.answer = verdict
    yield server
    server.close()


def marked(message: Message) -> dict[str, str]:
    """A message of a row, with ``<image>`` at the place of each picture."""
    content = (TextPart(text=message.content),) if isinstance(message.content, str) else message.content
    texts = (part.text if isinstance(part, TextPart) else "<image>" for part in content)
    return {"role": message.role, "content": "".join(texts)}


def conversations() -> Iterator[dict[str, Any]]:
    """Recorded episodes about the photos, with the prompts of the environment. They guess the answer."""
    for task in VisualSearchData(DataConfig(train=[str(QUESTIONS)], images=DATA)).tasks("train"):
        written = io.BytesIO()
        Image.open(io.BytesIO(task.images[0])).crop(BOX).save(written, format="PNG")
        result = CodeResult(status="ok", images=(written.getvalue(),), image_names=("image_clue_1",))
        (observed,) = result_observation(result, shown_pictures(result, 1), loaded=1).messages
        look = Message(role="assistant", content=code_turn("", f"image_clue_0.crop({BOX})"))
        for answer in ANSWERS:
            turns = (*task.messages, look, observed, Message(role="assistant", content=answer_turn("", answer)))
            images = [
                f"data:image/png;base64,{base64.b64encode(data).decode()}" for data in (*task.images, *result.images)
            ]
            yield {"messages": [marked(message) for message in turns], "images": images}


def test_photos_are_trained_on_with_code_and_a_judge(
    judge: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm-up teaches to crop and to guess. The judge scores the guesses, and its failures are not zeros."""
    monkeypatch.chdir(tmp_path)
    qwen_folder(tmp_path / "model", Path(str(DATA)))
    Path("photos.toml").write_text(CONFIG, encoding="utf-8")
    Path("recorded.jsonl").write_text("".join(json.dumps(row) + "\n" for row in conversations()), encoding="utf-8")
    files = json.dumps([str(QUESTIONS), "recorded.jsonl"])
    words = [f"data.train={files}", f"data.images={DATA}", f'reward.0.base_url=["{judge.url}"]', "name=photos"]
    monkeypatch.setattr("sys.argv", ["rlcore", "run", "-c", "photos.toml", *words])
    assert main() == 0
    lines = Path("runs/photos/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [found for found in map(json.loads, lines) if "reward/mean" in found]
    assert len(steps) == 2
    assert sum(step["not_scored"] for step in steps) > 0
    assert sum(step["reward_error/llm-judge/server error"] for step in steps if step["not_scored"]) > 0
    assert all(step["tools/calls"] > 0.5 for step in steps), "the model writes code"
    assert all(step["info/tool_images"] > 0.5 for step in steps), "the sandbox runs it and returns pictures"
    assert any(step["gradient_norm"] > 0 for step in steps)
    questions = {parts(body)["question"] for body in judge.bodies}
    assert len(questions) > 6
    assert any("signicade" in question for question in questions)
    stored = [group for path in sorted(Path("runs/photos/rollouts").iterdir()) for group in read_groups(path)]
    shown = [sibling for group in stored for sibling in group.trajectories if len(sibling.images) == 2]
    assert any("<image_clue_1></image_clue_1>" in message.text for one in shown for message in one.messages)
    right = [one for one in shown if one.reward == pytest.approx(1.1)]
    assert right, "an answer that the judge accepts, and the bonus of its call"
