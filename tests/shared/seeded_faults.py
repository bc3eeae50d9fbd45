"""Faults that are seeded into default recipes, each with the rule of the diagnosis that names it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from preloaded import rlcore_command
from rlcore.diagnosis.diagnosing import Diagnosis, diagnose

WARM, UNTRAINED = "WARM", "UNTRAINED"
"""Stand for the folders of the default recipe's policy after its warm-up, and before it."""
STEPS = 5
"""Steps within which a fault must be named."""
SHORT = (f"trainer.steps={STEPS}", "trainer.tasks_per_step=8", "evaluation.every=0", "checkpoint.every=0")
AFTER_WARM_UP = (f"model.path={WARM}", "warmup.steps=0")
COMPONENTS = '''
import hashlib

from rlcore import ToolError
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


def calculator(expression: str) -> str:
    """Compute an arithmetic expression.

    Args:
        expression: such as 12 * 7
    """
    raise ToolError("the server of the calculator is down")


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
    rule: str
    """The rule that names it, or the key in the error that rejects it."""
    words: tuple[str, ...]
    plugin: str = "gsm8k-tools"

    @property
    def rejected(self) -> bool:
        """Whether the run does not start."""
        return "." in self.rule


def warm(name: str, rule: str, *words: str) -> Fault:
    """A fault in reinforcement learning after the warm-up."""
    return Fault(name=name, rule=rule, words=(*AFTER_WARM_UP, *words))


FAULTS = (
    warm("wrong chat template", "template-changed", "model.chat_format=qwen2.5"),
    warm("reward always 0", "rewards-zero", "reward.0.id=faults.py:nothing"),
    warm("token limit too small", "cut-by-turn", "rollout.max_new_tokens=6"),
    warm("context too small", "cut-by-context", "rollout.max_context_tokens=64"),
    warm("learning rate 0", "trainer.learning_rate", "trainer.learning_rate=0"),
    warm("learning rate too small", "learning-rate-tiny", "trainer.learning_rate=1e-14"),
    warm("learning rate too large", "reward-fell", "trainer.learning_rate=0.1"),
    warm("tool name misspelt", "environment.tools", "environment.tools=['calculater']"),
    warm("tool that always fails", "tools-fail", "environment.tools=['faults.py:calculator']"),
    warm("parser of another family", "calls-missed", "model.tool_parser=mistral"),
    warm("rewards of other answers", "rewards-contradict", "reward.0.id=faults.py:of_others"),
    warm("shuffled rewards", "rewards-shuffled", "algorithm.shuffle_rewards=true"),
    warm("frozen adapter", "no-gradient", "lora.rank=4", "trainer.id=faults.py:Frozen"),
    warm("temperature 0", "rollout.temperature", "rollout.temperature=0"),
    warm("temperature near 0", "siblings-equal", "rollout.temperature=1e-5"),
    warm(
        "reference of another model",
        "reference-differs",
        "algorithm.kl.coefficient=0.01",
        f"algorithm.kl.reference={UNTRAINED}",
    ),
    Fault(name="warm-up too short", rule="warm-up-short", words=("warmup.steps=5",)),
    Fault(name="warm-up too short for actions", rule="warm-up-short", words=("warmup.steps=2",), plugin="gymnasium"),
)


def found_in(fault: Fault, folder: Path, *, warmed_up: Path, untrained: Path) -> list[Diagnosis]:
    """Run a recipe with a fault in ``folder``, and return its findings; none if it is rejected with its key."""
    (folder / "faults.py").write_text(COMPONENTS, encoding="utf-8")
    words = [word.replace(WARM, str(warmed_up)).replace(UNTRAINED, str(untrained)) for word in fault.words]
    name = fault.name.replace(" ", "-")
    done = rlcore_command(["run", "-p", fault.plugin, *SHORT, *words, f"name={name}"], folder)
    shown = done.stdout[-3000:] + done.stderr[-3000:]
    if fault.rejected:
        assert (done.returncode, fault.rule in done.stderr) == (2, True), shown
        return []
    assert done.returncode == 0, shown
    found = diagnose(folder / "runs" / name)
    assert [one.text for one in found.found if one.text not in done.stdout] == [], shown
    assert found.trained or done.stdout.splitlines()[-1].startswith("untrained "), shown
    return found.found
