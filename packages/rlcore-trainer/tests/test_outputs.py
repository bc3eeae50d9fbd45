from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy
import pytest
import torch
from rlcore.errors import DataError, UserError
from rlcore_trainer.algorithms import AdvantageInputs, AdvantageOutput, LossInputs, LossOutput
from rlcore_trainer.algorithms.outputs import advantages_of, loss_of

MASK_NT = torch.tensor([[True, True, False], [True, False, False]])
ROLLOUT = AdvantageInputs(
    rewards_N=torch.tensor([1.0, 0.0], dtype=torch.float64),
    groups_N=torch.tensor([0, 0]),
    lengths_N=torch.tensor([2, 1]),
    mask_NT=MASK_NT,
    rewards_NT=torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64),
    turns_NT=MASK_NT.long() - 1,
)


def batch() -> LossInputs:
    return LossInputs(
        logprobs_M=torch.tensor([-1.0, -2.0], requires_grad=True),
        old_logprobs_M=torch.tensor([-1.0, -2.0]),
        advantages_M=torch.ones(2),
        weights_M=torch.tensor([0.5, 0.5]),
        factors_M=torch.ones(2),
        sequence_M=torch.tensor([0, 0]),
    )


def advantage(output: Any, inputs: AdvantageInputs = ROLLOUT) -> AdvantageOutput:
    """What a run takes from an advantage with this output."""

    def mine(inputs: AdvantageInputs) -> Any:
        return output

    return advantages_of(mine, inputs)


def loss(of: Any) -> Any:
    """What a run takes from a loss that makes its output of log-probabilities and weights by ``of``."""

    def mine(inputs: LossInputs) -> Any:
        return of(inputs.logprobs_M, inputs.weights_M)

    return loss_of(mine, batch())


def of_rollout(advantages: Any, **others: Any) -> AdvantageOutput:
    return AdvantageOutput(advantages=advantages, **others)


def of_batch(loss: Any, **others: Any) -> LossOutput:
    return LossOutput(loss=loss, **others)


def test_valid_outputs_are_returned_unchanged() -> None:
    numbers: dict[str, Any] = {"a": 1, "b": 0.5, "c": torch.tensor(2.0), "d": numpy.float32(3.0), "e": True}
    expected = {"a": 1.0, "b": 0.5, "c": 2.0, "d": 3.0, "e": 1.0}
    found = advantage(of_rollout(torch.tensor([0.5, -0.5], requires_grad=True), metrics=numbers))
    assert found.advantages.tolist() == [0.5, -0.5]
    assert not found.advantages.requires_grad
    assert found.returns_NT is None
    assert found.metrics == expected
    assert all(type(value) is float for value in found.metrics.values())
    taken, metrics = loss(lambda a, w: of_batch((w * a).sum(), metrics=numbers))
    assert float(taken.detach()) == -1.5
    assert taken.requires_grad
    assert {name: float(value) for name, value in metrics.items()} == expected
    assert all(value.ndim == 0 and value.dtype == torch.float32 for value in metrics.values())


def test_values_on_padding_are_ignored() -> None:
    padded_NT = torch.tensor([[1.0, 2.0, float("nan")], [3.0, float("inf"), 0.0]])
    found = advantage(of_rollout(padded_NT, returns_NT=padded_NT))
    assert found.advantages is not None
    assert found.returns_NT is not None


NAN = torch.tensor([float("nan"), 1.0])


@pytest.mark.parametrize(
    ("output", "wanted", "found"),
    [
        (None, "AdvantageOutput", "None"),
        (torch.ones(2), "AdvantageOutput", "a tensor [2] of float32"),
        ((torch.ones(2), {}), "AdvantageOutput", "a tuple of 2"),
        (of_rollout([1.0, 2.0]), "advantages as a tensor", "a list of 2"),
        (of_rollout(1.0), "advantages as a tensor", "1.0 (float)"),
        (of_rollout(torch.ones(2, dtype=torch.long)), "advantages as a tensor", "a tensor [2] of int64"),
        (of_rollout(torch.ones(2), metrics=None), "a dictionary of metrics", "None"),
        (of_rollout(torch.ones(2), metrics={"x": torch.ones(3)}), "one number", "x: a tensor [3] of float32"),
        (of_rollout(torch.ones(2), metrics={"x": "x"}), "one number", "x: 'x' (str)"),
        (of_rollout(torch.ones(3)), r"advantages \[2\] or \[2, 3\] for this rollout", "a tensor [3] of float32"),
        (of_rollout(torch.ones(2, 2)), r"advantages \[2\] or \[2, 3\]", "a tensor [2, 2] of float32"),
        (of_rollout(torch.ones(())), r"advantages \[2\] or \[2, 3\]", "a tensor [] of float32"),
        (of_rollout(NAN), "finite advantages", "nan or infinite for 2 of 3 written tokens"),
        (of_rollout(torch.full((2, 3), torch.inf)), "finite advantages", "nan or infinite for 3 of 3 written tokens"),
        (of_rollout(torch.ones(2), returns_NT=torch.ones(2)), r"returns_NT \[2, 3\]", "a tensor [2] of float32"),
        (
            of_rollout(torch.ones(2), returns_NT=torch.full((2, 3), torch.nan)),
            "finite returns",
            "nan or infinite for 3 of 3 written tokens",
        ),
    ],
)
def test_invalid_advantage_output_is_explained(output: Any, wanted: str, found: str) -> None:
    with pytest.raises(UserError, match=f"the advantage mine must return {wanted}") as caught:
        advantage(output)
    assert caught.value.found == found
    assert caught.value.fix
    assert str(caught.value.where).startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("of", "wanted", "found"),
    [
        (lambda a, w: None, "LossOutput", "None"),
        (lambda a, w: (w * a).sum(), "LossOutput", "a tensor [] of float32"),
        (lambda a, w: of_batch(1.0), "a loss as a tensor", "1.0 (float)"),
        (lambda a, w: of_batch(torch.tensor(1)), "a loss as a tensor", "a tensor [] of int64"),
        (lambda a, w: of_batch(w * a), "a loss that is the sum over its tokens", "a tensor [2] of float32"),
        (lambda a, w: of_batch((w * a).sum().detach()), "a loss through which a gradient", "a tensor without gradient"),
        (lambda a, w: of_batch((w * a).sum(), metrics=None), "a dictionary of metrics", "None"),
        (lambda a, w: of_batch((w * a).sum(), metrics={"x": a}), "one number", "x: a tensor [2] of float32"),
    ],
)
def test_invalid_loss_output_is_explained(of: Any, wanted: str, found: str) -> None:
    with pytest.raises(UserError, match=f"the loss mine must return {wanted}") as caught:
        loss(of)
    assert caught.value.found == found
    assert caught.value.fix


def test_loss_needs_no_gradient_if_gradients_are_disabled() -> None:
    with torch.no_grad():
        assert float(loss(lambda a, w: of_batch((w * a).sum()))[0]) == -1.5


def test_function_that_raises_is_named_with_its_line() -> None:
    def breaks(inputs: AdvantageInputs) -> AdvantageOutput:
        return AdvantageOutput(advantages=inputs.rewards_N.reshape(7))

    with pytest.raises(UserError, match="the advantage breaks raised RuntimeError: shape") as caught:
        advantages_of(breaks, ROLLOUT)
    line = inspect.getsourcelines(breaks)[1] + 1
    assert caught.value.where == f"{__file__}:{line}"
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_rlcore_errors_and_out_of_memory_errors_propagate() -> None:
    for own in (DataError("no such column"), MemoryError()):

        def refuses(inputs: AdvantageInputs, own: Exception = own) -> Any:
            raise own

        with pytest.raises(type(own)) as caught:
            advantages_of(refuses, ROLLOUT)
        assert caught.value is own


def test_diverged_critic_is_reported() -> None:
    def trusting(inputs: AdvantageInputs) -> AdvantageOutput:
        assert inputs.values_NT is not None
        return AdvantageOutput(advantages=-inputs.values_NT)

    values_NT = torch.full((2, 3), float("nan"))
    with pytest.raises(UserError, match="finite advantages") as caught:
        advantages_of(trusting, replace(ROLLOUT, values_NT=values_NT))
    assert "the critic's values are not finite" in str(caught.value.fix)
