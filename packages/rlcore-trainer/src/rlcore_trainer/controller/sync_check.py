"""Check that the engine has the policy's weights by comparing log-probabilities on a fixed prompt.

A weight transfer can fail silently for a single tensor, such as a tied output layer or a packed copy. Training would
then continue on samples from mixed weights.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math

import torch
from rlcore.contracts import TokenSampler
from rlcore.errors import EngineError
from rlcore.models.vision_language import VisionLanguageModel
from rlcore.types import Completion, MediaSpan, Prompt, Sampling, TokenIds

from rlcore_trainer.policy.policy import TokenPolicy

PROMPT_TOKENS = 8
NEW_TOKENS = 16
TEMPERATURE = 2.0
"""High, because log-probabilities of tokens of which the model is sure hardly change. vLLM accepts at most 2."""
PICTURE = 2, 3
"""Rows and columns of the visual tokens of the picture."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.02, torch.float16: 0.005}
"""Difference of log-probabilities in nats that is always accepted."""
ROUNDING = 3.0
"""Differences up to this multiple of the policy's own rounding are accepted. The engine rounds other numbers by about
as much, while a stale tensor makes a difference of at least 5 times the rounding."""
UNCLEAR = 0.5
"""Rounding of the policy in nats above which a difference proves nothing."""


def fixed_prompt(policy: TokenPolicy) -> Prompt:
    """Return a prompt that is the same in every check of a policy, with a picture for a vision-language model."""
    ids = [(7 * t * t + 5 * t + 3) % policy.vocabulary for t in range(PROMPT_TOKENS)]
    if not policy.sees_images:
        return Prompt(token_ids=TokenIds(ids))
    model = VisionLanguageModel.of_folder(policy.folder)
    assert model is not None
    from PIL import Image

    rows, columns = PICTURE
    side = model.processor.token_side
    written = io.BytesIO()
    shades = Image.linear_gradient("L").resize((columns * side, rows * side))
    Image.merge("RGB", (shades, shades.rotate(180), shades)).save(written, format="PNG")
    name = hashlib.sha256(written.getvalue()).hexdigest()
    ids = [token for token in ids if token != model.placeholder]
    span = MediaSpan(sha256=name, offset=1, length=rows * columns, rows=rows, columns=columns)
    return Prompt(
        token_ids=TokenIds([ids[0], *[model.placeholder] * span.length, *ids[1:]]),
        media=(span,),
        images={name: written.getvalue()},
    )


def compare(sampler: TokenSampler, policy: TokenPolicy) -> float:
    """Return the mean difference in nats between the log-probabilities of engine and policy on the fixed prompt.

    With several engines, it is the largest one. In half precision, the difference is that from the policy computed in
    float32, and is judged by how much the policy's own computation differs from that on the same tokens.

    Raises:
        EngineError: the difference is too large, or the engine reports a different weight version.
    """
    prompt = fixed_prompt(policy)
    placeholders = {prompt.token_ids[span.offset] for span in prompt.media}
    sampling = Sampling(
        max_new_tokens=NEW_TOKENS, temperature=TEMPERATURE, seed=1, suppressed_token_ids=tuple(placeholders)
    )
    answers = {(one.policy_version, one.token_ids, one.logprobs): one for one in sampler.completions(prompt, sampling)}
    return max(_gap(policy, prompt, answer) for answer in answers.values())


def _gap(policy: TokenPolicy, prompt: Prompt, answer: Completion) -> float:
    """Return the mean difference in nats between an answer and the policy. Raises as `compare`."""
    version = policy.version
    if answer.policy_version != version:
        raise EngineError(f"the engine has version {answer.policy_version} of the weights, expected {version}")
    engine_T = torch.tensor(answer.logprobs, dtype=torch.float64)
    own_T = policy.continuation(prompt, answer.token_ids)
    exact_T = own_T if policy.dtype == torch.float32 else policy.continuation(prompt, answer.token_ids, rounded=False)
    gap, rounding = (float((one_T - exact_T).abs().mean()) for one_T in (engine_T, own_T))
    tolerance = max(TOLERANCE[policy.dtype], ROUNDING * rounding)
    if gap <= tolerance:
        return gap
    found = (
        f"on a fixed prompt, its log-probabilities differ by {gap:.3g} nats on average (tolerance {tolerance:.3g}, "
        f"rounding of the policy {rounding:.3g})"
    )
    if rounding > UNCLEAR and math.isfinite(gap):
        logging.getLogger(__name__).warning("the weights of the engine cannot be verified: %s", found)
        return gap
    raise EngineError(f"the engine does not have version {version} of the policy's weights: {found}")


def prove(sampler: TokenSampler, policy: TokenPolicy) -> None:
    """Verify once that every tensor is transferred, by transferring modified weights and restoring them afterwards.

    Without the modification, an engine that loaded the same folder as the trainer would pass without any transfer.
    """
    for number in range(policy.perturbations):
        with policy.perturbed(number):
            sampler.update_weights(policy)
            try:
                compare(sampler, policy)
            except EngineError as error:
                raise EngineError(f"the weight transfer to the engine failed: {error}") from error
    sampler.update_weights(policy)
