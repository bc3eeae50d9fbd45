from __future__ import annotations

import random
import re
from collections import Counter

from rl_plugin_gsm8k_tools import problems
from rl_plugin_gsm8k_tools.calculator import calculator
from rl_plugin_gsm8k_tools.problems import CUES, OPERATIONS, SHARE_CORRECT


def sentence(frame: str) -> str:
    return frame.partition(".")[0]


def test_splits_share_no_sentence_and_no_pair_of_numbers() -> None:
    train, held_out = problems.frames("train"), problems.frames("evaluation")
    assert not {sentence(frame) for _, frame in train} & {sentence(frame) for _, frame in held_out}
    assert not set(problems.pairs("train")) & set(problems.pairs("evaluation"))
    assert len(held_out) > 100
    assert len(problems.pairs("evaluation")) > 20


def test_every_cue_occurs_in_both_splits() -> None:
    for operation in OPERATIONS:
        for cue in CUES[operation]:
            for split in ("train", "evaluation"):
                assert any(cue in frame for meant, frame in problems.frames(split) if meant == operation)


def test_tasks_of_the_splits_share_no_frame_and_no_pair() -> None:
    train, held_out = problems.tasks("train"), problems.tasks("evaluation")
    assert not {task.fields["frame"] for task in train} & {task.fields["frame"] for task in held_out}
    numbers = [{tuple(re.findall(r"\d+", t.messages[0].text)) for t in s} for s in (train, held_out)]
    assert not numbers[0] & numbers[1]
    assert len({task.id for task in train + held_out}) == len(train) + len(held_out)
    assert problems.tasks("train") == train


def test_answers_are_integers_and_operations_are_balanced() -> None:
    rng = random.Random(1)
    made = [problems.make("train", rng) for _ in range(2000)]
    assert all(problem.answer.isdecimal() for problem in made)
    counts = Counter(problem.operation for problem in made)
    assert min(counts.values()) > 400
    firsts = {op: sum(p.first for p in made if p.operation == op) / counts[op] for op in OPERATIONS}
    assert max(firsts.values()) - min(firsts.values()) < 8, "the numbers must not reveal the operation"


def test_wrong_expression_is_never_correct() -> None:
    rng = random.Random(2)
    for _ in range(500):
        problem = problems.make("train", rng)
        assert calculator(problem.wrong_expression) != problem.answer


def test_demonstrations_are_correct_at_most_a_third_of_the_time() -> None:
    conversations = list(problems.demonstrations(2000, seed=3))
    expressions = [str((call.tool_calls[0].arguments or {})["expression"]) for _, call, _, _ in conversations]
    assert sum("*" in text and "+" in text for text in expressions) / 2000 > 1 - SHARE_CORRECT - 0.05
    assert SHARE_CORRECT <= 1 / 3
    for _, call, answer, final in conversations[:100]:
        assert call.tool_calls[0].arguments is not None
        assert answer.text == calculator(call.tool_calls[0].arguments["expression"])
        assert final.text == f"#### {answer.text}"
    assert conversations == list(problems.demonstrations(2000, seed=3))
