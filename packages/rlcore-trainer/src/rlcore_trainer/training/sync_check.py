"""Check that the engine has the policy's weights by comparing tokens and log-probabilities on a fixed prompt.

A weight transfer can fail silently for a single tensor, such as a tied output layer or a packed copy. Training would
then continue on samples from mixed weights.
"""

from __future__ import annotations

import torch
from rlcore.contracts import Executor
from rlcore.errors import EngineError
from rlcore.types import Prompt, Sampling, TokenIds

from rlcore_trainer.policy.policy import TokenPolicy

PROMPT_TOKENS = 8
NEW_TOKENS = 4
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.05}
"""Maximum mean difference of log-probabilities in nats: above rounding errors, below that of stale weights."""


def fixed_prompt(policy: TokenPolicy) -> list[int]:
    """Return tokens that are the same in every check of a policy."""
    return [(7 * t * t + 5 * t + 3) % policy.vocabulary for t in range(PROMPT_TOKENS)]


def compare(executor: Executor, policy: TokenPolicy) -> float:
    """Return the mean difference in nats between the log-probabilities of engine and policy on the fixed prompt.

    Raises:
        EngineError: the difference is too large, the tokens are not greedy under the policy, or the engine reports a
            different weight version.
    """
    version = policy.version
    prompt = fixed_prompt(policy)
    answer = executor.generate(Prompt(token_ids=TokenIds(prompt)), Sampling(max_new_tokens=NEW_TOKENS, temperature=0.0))
    own_T, best_T = policy.continuation(prompt, answer.token_ids)
    engine_T = torch.tensor(answer.logprobs, dtype=torch.float64)
    gap = float((engine_T - own_T).abs().mean())
    behind = float((best_T - own_T).max())
    tolerance = TOLERANCE[policy.dtype]
    if answer.policy_version != version:
        raise EngineError(f"the engine has version {answer.policy_version} of the weights, expected {version}")
    if not (gap <= tolerance and behind <= 2 * tolerance):
        raise EngineError(
            f"the engine does not have version {version} of the policy's weights: on a fixed prompt, its "
            f"log-probabilities differ by {gap:.3g} nats on average (tolerance {tolerance:g}), and its greedy tokens "
            f"are up to {behind:.3g} nats less likely than the policy's"
        )
    return gap


def prove(executor: Executor, policy: TokenPolicy) -> None:
    """Verify once that every tensor is transferred, by transferring modified weights and restoring them afterwards.

    Without the modification, an engine that loaded the same folder as the trainer would pass without any transfer.
    """
    with policy.turned():
        executor.sync_weights(policy)
        try:
            compare(executor, policy)
        except EngineError as error:
            raise EngineError(f"the weight transfer to the engine failed: {error}") from error
    executor.sync_weights(policy)
