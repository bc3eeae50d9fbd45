"""Faults that are seeded into default recipes, each with the rule of the diagnosis that names it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WARM = "WARM"
"""Stands for the folder of the default recipe's policy after its warm-up."""
STEPS = 5
"""Steps within which a fault must be named."""
SHORT = (f"trainer.steps={STEPS}", "trainer.tasks_per_step=8", "evaluation.every=0", "checkpoint.every=0")
AFTER_WARM_UP = (f"model.path={WARM}", "warmup.steps=0")
COMPONENTS = '''
import hashlib

import rlcore
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer
from rlcore_trainer.plugin import rlcore_trainers


def nothing(trajectory, task):
    """A reward that never finds an answer."""
    return 0.0


def of_others(trajectory, task):
    """A reward of the results in another order."""
    digest = hashlib.sha256(f"{task.id} {trajectory.sibling}".encode()).digest()
    return float(digest[0] % 2)


def calculater(expression: str) -> str:
    """Compute an arithmetic expression.

    Args:
        expression: such as 12 * 7
    """
    return expression


class Frozen(PolicyGradientTrainer):
    """Freezes the adapter: its gradients are 0."""

    Config = PolicyGradientConfig
    tables = next(spec.tables for spec in rlcore_trainers() if spec.id == "policy-gradient")

    def __init__(self, run):
        super().__init__(run)
        for one in self.session.policy.module.parameters():
            if one.requires_grad:
                one.register_hook(lambda gradient: gradient * 0)
'''
"""The file ``faults.py``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault in a default recipe."""

    name: str
    named: str
    """The rule that must name it, or the key in the error that refuses it."""
    words: tuple[str, ...]
    plugin: str = "gsm8k-tools"
    refused: bool = False
    """Whether the run does not start."""


FAULTS = (
    Fault(
        name="chat format of another family",
        named="template-changed",
        words=(*AFTER_WARM_UP, "model.chat_format=qwen2.5"),
    ),
    Fault(name="reward always 0", named="rewards-zero", words=(*AFTER_WARM_UP, "reward.0.id=faults.py:nothing")),
    Fault(name="token limit too small", named="cut-by-turn", words=(*AFTER_WARM_UP, "rollout.max_new_tokens=6")),
    Fault(name="context too small", named="cut-by-context", words=(*AFTER_WARM_UP, "rollout.max_context_tokens=64")),
    Fault(name="learning rate 0", named="trainer.learning_rate", words=("trainer.learning_rate=0",), refused=True),
    Fault(
        name="learning rate too small",
        named="learning-rate-tiny",
        words=(*AFTER_WARM_UP, "trainer.learning_rate=1e-14"),
    ),
    Fault(name="learning rate too large", named="reward-fell", words=(*AFTER_WARM_UP, "trainer.learning_rate=0.1")),
    Fault(
        name="tool name misspelt",
        named="tools-fail",
        words=(*AFTER_WARM_UP, "environment.tools=['faults.py:calculater']"),
    ),
    Fault(name="parser of another family", named="calls-missed", words=(*AFTER_WARM_UP, "model.tool_parser=mistral")),
    Fault(
        name="rewards of other answers",
        named="rewards-contradict",
        words=(*AFTER_WARM_UP, "reward.0.id=faults.py:of_others"),
    ),
    Fault(name="shuffled rewards", named="rewards-shuffled", words=(*AFTER_WARM_UP, "algorithm.shuffle_rewards=true")),
    Fault(
        name="frozen adapter", named="no-gradient", words=(*AFTER_WARM_UP, "lora.rank=4", "trainer.id=faults.py:Frozen")
    ),
    Fault(name="temperature 0", named="rollout.temperature", words=("rollout.temperature=0",), refused=True),
    Fault(name="temperature close to 0", named="siblings-equal", words=(*AFTER_WARM_UP, "rollout.temperature=1e-5")),
    Fault(
        name="reference of another model",
        named="reference-differs",
        words=(*AFTER_WARM_UP, "algorithm.kl.coefficient=0.01", "algorithm.kl.reference=UNTRAINED"),
    ),
    Fault(name="warm-up too short", named="warm-up-short", words=("warmup.steps=5",)),
    Fault(
        name="warm-up too short, invalid actions", named="warm-up-short", words=("warmup.steps=2",), plugin="gymnasium"
    ),
)


def words_of(fault: Fault, warm: Path, untrained: Path) -> list[str]:
    """The command line of a fault."""
    given = [word.replace(WARM, str(warm)).replace("UNTRAINED", str(untrained)) for word in fault.words]
    return ["run", "-p", fault.plugin, *SHORT, *given]
