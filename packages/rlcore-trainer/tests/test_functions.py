"""Functions of tensors as advantages and losses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError
from rlcore_trainer.algorithms import AdvantageTraits, LossOutput, LossTraits, advantage, loss


@loss(token_wise=False)
def knee(logprobs_M: Missing, weights_M, epsilon=1e-6, *, factor: Annotated[float, Field(gt=1)] = 1.5, name: str = "x"):  # noqa: F821
    """A loss.

    Keys:
        factor: the largest change of a probability,
            up or down
    """
    return logprobs_M * factor, {name: weights_M}


def test_keyword_parameters_are_keys() -> None:
    config: Any = knee.Config(factor=2)  # type: ignore[attr-defined]
    assert config.model_dump() == {"factor": 2.0, "name": "x"}
    field = type(config).model_fields["factor"]
    assert field.description == "The largest change of a probability, up or down."
    with pytest.raises(ValidationError):
        type(config)(factor=1)
    with pytest.raises(ValidationError):
        type(config)(epsilon=1)


def test_other_parameters_are_fields_of_the_inputs() -> None:
    call = knee.configured(knee.Config(factor=2))  # type: ignore[attr-defined]
    assert call(SimpleNamespace(logprobs_M=3, weights_M=4)) == LossOutput(loss=6.0, metrics={"x": 4})  # type: ignore[arg-type]
    assert call.traits == LossTraits(token_wise=False)
    assert call.__name__ == "knee"


def test_function_without_keys_takes_no_table() -> None:
    @advantage(needs_critic=True)
    def plain(rewards_N: Any) -> Any:
        return rewards_N, {}

    assert plain.Config is None
    assert plain.traits == AdvantageTraits(needs_critic=True)
    assert plain.configured(None)(SimpleNamespace(rewards_N=1)).advantages == 1


def test_unknown_trait_is_an_error_at_import() -> None:
    with pytest.raises(TypeError, match="token_wize"):
        loss(token_wize=False)
