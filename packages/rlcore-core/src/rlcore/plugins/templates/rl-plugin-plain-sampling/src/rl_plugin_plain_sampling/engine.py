"""The engine. Axes: V vocabulary."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
from rlcore import Completion, EngineError, Logprobs, Prompt, Sampling, TokenIds, WeightSource
from rlcore_rollout.engines.torch.sampling import draw, uniforms
from transformers import AutoConfig, AutoModelForCausalLM

if TYPE_CHECKING:
    from rlcore_rollout.engines.context import EngineContext

    from rl_plugin_plain_sampling.config import PlainSamplingConfig


class PlainSampling:
    """Continues one prompt at a time with a model of transformers, in float32, with its own copy of the weights.

    A run makes many calls at once. An engine that serves them together is much faster.
    """

    def __init__(self, config: PlainSamplingConfig, source: WeightSource, context: EngineContext) -> None:
        self.device = "cpu" if context.device == "cpu" or not torch.cuda.is_available() else "cuda"
        self.model = _model(source).to(self.device).eval()
        self.cached = config.cache
        self.context = context.max_context_tokens or int(self.model.config.max_position_embeddings)
        # The event loop, which also runs the tools, must not wait for the model. One thread keeps the calls apart.
        self.thread = ThreadPoolExecutor(1)
        self._load(source)

    async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Continue a prompt. Calls of one session extend each other; this engine computes each from the beginning."""
        if sampling.stop:
            raise EngineError("plain-sampling does not support rollout.stop")
        return await asyncio.get_running_loop().run_in_executor(self.thread, self._sample, prompt, sampling)

    async def release(self, session: str) -> None:
        """End a session: nothing is kept between calls."""

    async def load_weights(self, source: WeightSource) -> int:
        """Copy the weights of the policy. Before its first step, a run verifies that every tensor has arrived."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, self._load, source)

    async def close(self) -> None:
        """End the thread after the call that it computes."""
        self.thread.shutdown(cancel_futures=True)

    # Once the engine is created, the methods below run in its thread.

    @torch.no_grad()
    def _load(self, source: WeightSource) -> int:
        own = self.model.state_dict()
        for weight in source.weights() or ():  # one at a time, because they may be gathered from several devices
            own[weight.name].copy_(weight.tensor)
        self.version = source.version  # between two completions, each of which has the weights with which it began
        return self.version

    @torch.no_grad()
    def _sample(self, prompt: Prompt, sampling: Sampling) -> Completion:
        tokens, logprobs = list[int](), list[float]()
        start, cache, stopped = len(prompt.token_ids), None, False
        unread = list(prompt.token_ids)
        while not stopped and len(tokens) < min(sampling.max_new_tokens, self.context - start):
            ids = torch.tensor([unread], device=self.device)
            output = self.model(input_ids=ids, past_key_values=cache, use_cache=self.cached)
            cache, logits_V = output.past_key_values, output.logits[0, -1].float()
            # A random number belongs to the seed and the position of its token, so a run can be repeated. The
            # log-probability is that at temperature 1, whatever the sampling.
            number = uniforms(sampling.seed, start + len(tokens), 1)
            (token,), (logprob,) = draw(logits_V[None], [sampling], number)
            tokens.append(token)
            logprobs.append(logprob)
            unread = [token] if self.cached else [*unread, token]
            stopped = token in sampling.stop_token_ids
        return Completion(
            token_ids=TokenIds(tokens),
            logprobs=Logprobs(logprobs),
            finish_reason="stop" if stopped else "length",
            policy_version=self.version,
        )


def _model(source: WeightSource) -> Any:
    """A model in float32: with the weights of the folder in an evaluation, else to be filled by `_load`."""
    if source.folder is None:
        raise EngineError("plain-sampling needs a model folder")
    models: Any = AutoModelForCausalLM
    safe = {"dtype": torch.float32, "trust_remote_code": False}  # code in a model folder is never executed
    if source.weights() is None:
        return models.from_pretrained(source.folder, **safe)
    return models.from_config(AutoConfig.from_pretrained(source.folder, trust_remote_code=False), **safe)
