from __future__ import annotations

import inspect
from typing import Any

import numpy
import pytest
import torch
from rlcore.errors import DataError, UserError
from rlcore_trainer.needs import Injected, needs_of
from torch import Tensor

MASK_NT = torch.tensor([[True, True, False], [True, False, False]])
ROLLOUT = {"rewards_N": torch.tensor([1.0, 0.0], dtype=torch.float64), "mask_NT": MASK_NT}


def batch() -> dict[str, Tensor]:
    return {"logprobs_M": torch.tensor([-1.0, -2.0], requires_grad=True), "weights_M": torch.tensor([0.5, 0.5])}


def advantage(answer: Any) -> Any:
    """What a run takes from an advantage with this answer."""

    def mine(rewards_N: Tensor) -> Any:
        return answer

    return Injected("advantage", mine, keys={}, own={})(ROLLOUT)


def loss(of: Any) -> Any:
    """What a run takes from a loss that is made of log-probabilities and weights by ``of``."""

    def mine(logprobs_M: Tensor, weights_M: Tensor) -> Any:
        return of(logprobs_M, weights_M)

    return Injected("loss", mine, keys={}, own={})(batch())


def test_positional_parameters_are_data_and_keyword_only_ones_are_keys() -> None:
    def mine(rewards_N: Tensor, length: int = 3, groups_N: Any = None, *, gamma: float, slope: int = 1) -> None: ...

    needs = needs_of("advantage", mine)
    assert needs.reads == ("rewards_N", "groups_N")
    assert needs.options == ("gamma", "slope")
    assert needs.required == ("gamma",)
    assert not needs.takes_any_option


def test_good_answers_are_taken_as_they_are() -> None:
    numbers = {"a": 1, "b": 0.5, "c": torch.tensor(2.0), "d": numpy.float32(3.0), "e": True}
    taken, metrics = advantage((torch.tensor([0.5, -0.5], requires_grad=True), numbers))
    assert taken.tolist() == [0.5, -0.5]
    assert not taken.requires_grad
    assert metrics == {"a": 1.0, "b": 0.5, "c": 2.0, "d": 3.0, "e": 1.0}
    assert all(type(value) is float for value in metrics.values())
    taken, metrics = loss(lambda logprobs_M, weights_M: ((weights_M * logprobs_M).sum(), numbers))
    assert float(taken.detach()) == -1.5
    assert taken.requires_grad
    assert {name: float(value) for name, value in metrics.items()} == {"a": 1.0, "b": 0.5, "c": 2.0, "d": 3.0, "e": 1.0}
    assert all(value.ndim == 0 and value.dtype == torch.float32 for value in metrics.values())


def test_what_stands_on_tokens_that_nobody_wrote_does_not_matter() -> None:
    padded_NT = torch.tensor([[1.0, 2.0, float("nan")], [3.0, float("inf"), 0.0]])
    assert advantage((padded_NT, {}))[0] is not None


TWO, TENSOR = "two things: a tensor and a dictionary of metrics", "a tensor of floating-point numbers first"


@pytest.mark.parametrize(
    ("answer", "wanted", "found"),
    [
        (None, TWO, "None"),
        (torch.ones(2), TWO, "a tensor [2] of float32"),
        ([1.0, 2.0], TWO, "a list of 2"),
        ((torch.ones(2), {}, 1), TWO, "a tuple of 3"),
        (([1.0, 2.0], {}), TENSOR, "a list of 2"),
        ((1.0, {}), TENSOR, "1.0 (float)"),
        ((torch.ones(2, dtype=torch.long), {}), TENSOR, "a tensor [2] of int64"),
        ((torch.ones(2), None), "a dictionary of metrics second", "None"),
        ((torch.ones(2), {"far": torch.ones(3)}), "one number for each metric", "far: a tensor [3] of float32"),
        ((torch.ones(2), {"far": "x"}), "one number for each metric", "far: 'x' (str)"),
        ((torch.ones(3), {}), r"a tensor \[2\] or \[2, 3\] for this rollout", "a tensor [3] of float32"),
        ((torch.ones(2, 2), {}), r"a tensor \[2\] or \[2, 3\]", "a tensor [2, 2] of float32"),
        ((torch.ones(()), {}), r"a tensor \[2\] or \[2, 3\]", "a tensor [] of float32"),
        ((torch.tensor([float("nan"), 1.0]), {}), "finite advantages", "nan or infinite for 2 of 3 written tokens"),
        ((torch.full((2, 3), float("inf")), {}), "finite advantages", "nan or infinite for 3 of 3 written tokens"),
    ],
)
def test_another_answer_of_an_advantage_is_told(answer: Any, wanted: str, found: str) -> None:
    with pytest.raises(UserError, match=f"the advantage mine must return {wanted}") as caught:
        advantage(answer)
    assert caught.value.found == found
    assert caught.value.mend
    assert str(caught.value.where).startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("of", "wanted", "found"),
    [
        (lambda a, w: None, TWO, "None"),
        (lambda a, w: (w * a).sum(), TWO, "a tensor [] of float32"),
        (lambda a, w: (1.0, {}), TENSOR, "1.0 (float)"),
        (lambda a, w: (torch.tensor(1), {}), TENSOR, "a tensor [] of int64"),
        (lambda a, w: (w * a, {}), "the sum over its tokens, a tensor without axes", "a tensor [2] of float32"),
        (lambda a, w: ((w * a).sum().detach(), {}), "a loss through which a gradient", "a tensor without gradient"),
        (lambda a, w: ((w * a).sum(), None), "a dictionary of metrics second", "None"),
        (lambda a, w: ((w * a).sum(), {"x": a}), "one number for each metric", "x: a tensor [2] of float32"),
    ],
)
def test_another_answer_of_a_loss_is_told(of: Any, wanted: str, found: str) -> None:
    with pytest.raises(UserError, match=f"the loss mine must return {wanted}") as caught:
        loss(of)
    assert caught.value.found == found
    assert caught.value.mend


def test_without_gradients_no_gradient_is_asked_for() -> None:
    with torch.no_grad():
        assert float(loss(lambda a, w: ((w * a).sum(), {}))[0]) == -1.5


def test_a_function_that_raises_is_named_with_the_line() -> None:
    def breaks(rewards_N: Tensor) -> Any:
        return rewards_N.reshape(7), {}

    with pytest.raises(UserError, match="the advantage breaks raised RuntimeError: shape") as caught:
        Injected("advantage", breaks, keys={}, own={})(ROLLOUT)
    line = inspect.getsourcelines(breaks)[1] + 1
    assert caught.value.where == f"{__file__}:{line}"
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_what_it_says_itself_passes_through_and_so_does_a_lack_of_memory() -> None:
    for own in (DataError("no such column"), MemoryError()):

        def refuses(rewards_N: Tensor, own: Exception = own) -> Any:
            raise own

        with pytest.raises(type(own)) as caught:
            Injected("advantage", refuses, keys={}, own={})(ROLLOUT)
        assert caught.value is own


def test_a_critic_that_has_diverged_is_blamed() -> None:
    def trusting(values_NT: Tensor) -> Any:
        return -values_NT, {}

    values_NT = torch.full((2, 3), float("nan"))
    with pytest.raises(UserError, match="finite advantages") as caught:
        Injected("advantage", trusting, keys={}, own={})({**ROLLOUT, "values_NT": values_NT})
    assert "the critic's values are not finite" in str(caught.value.mend)
