"""`VllmEngine`: vLLM in a separate process that receives the policy's weights after every update."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from rlcore.contracts import NamedTensor
from rlcore.errors import EngineError, UserError
from rlcore.models.adapter import is_adapter
from rlcore.models.contents import INDEX, indexed_files
from rlcore.models.folder import base_of
from rlcore.models.vision_language import VisionLanguageModel
from rlcore.models.weights import check_layers, check_types
from rlcore.runs.machine import note_processes
from rlcore.types import Completion, Logprobs, Prompt, Sampling, TokenIds, VersionSpan, derive_seed
from rlcore_models.streaming import named

from rlcore_rollout.engines.context import CHECK_SESSION
from rlcore_rollout.engines.vllm.adapter import Adapter
from rlcore_rollout.engines.vllm.images import ImageInput, check_expanded
from rlcore_rollout.engines.vllm.launch import prepare
from rlcore_rollout.engines.vllm.shared_memory import Segment
from rlcore_rollout.threads import run_to_end

if TYPE_CHECKING:
    from rlcore.contracts import WeightSource
    from vllm.inputs import TokensPrompt
    from vllm.lora.request import LoRARequest
    from vllm.outputs import CompletionOutput
    from vllm.v1.engine.async_llm import AsyncLLM

    from rlcore_rollout.engines.context import EngineContext
    from rlcore_rollout.engines.vllm.config import VllmEngineConfig


SHUTDOWN_S = 20.0
"""Time that a healthy vLLM gets to exit on its own."""
LOOK_S = 1.0
"""Time between two looks at vLLM's process while it does not answer."""
UNNAMED = "default"
"""vLLM's name of the weights that it has loaded itself."""
RESTARTED = "vLLM has been restarted, and does not have the weights yet"


class VllmEngine:
    """Samples with vLLM (`rlcore.contracts.Engine`).

    ``sampling.seed`` is not passed on: all draws come from vLLM's single random stream, in the order of its batches. A
    generator for each request is slow in vLLM, and on a CPU with version 0.32 a prompt computed in chunks ends the
    process. Two runs with the same seed therefore agree in statistics, not in tokens.

    A cancelled generation, also one cancelled by a deadline, is aborted in vLLM. When vLLM dies or does not answer, the
    calls in flight fail, ``failure`` holds the reason, and the next `load_weights` restarts vLLM. Until it has the
    weights, further calls fail.

    New weights take effect between two tokens. Completions in flight continue with them: vLLM computes their keys and
    values anew. With an adapter, they end with the adapter with which they began.
    """

    failure: str | None = None
    """Why vLLM cannot continue; None while it can."""

    def __init__(self, config: VllmEngineConfig, source: WeightSource, context: EngineContext):
        folder = source.folder
        if context.quantization != "none":
            raise UserError(
                "the vllm engine does not quantise its base model",
                found=f"model.quantization={context.quantization}",
                fix="rollout.engine=torch, or model.quantization=none",
            )
        self._adapter = Adapter.of(source, sampled_during_updates=context.sampled_during_updates)
        self._serving: LoRARequest | None = None
        self._retired: list[LoRARequest] = []
        """Adapters that completions in flight may still use."""
        self._users: Counter[int] = Counter()
        """Number of completions in flight by the number of their adapter."""
        self._lock = asyncio.Lock()
        if folder is not None and is_adapter(folder):
            folder = base_of(folder)
        if folder is None or not (folder / "config.json").is_file():
            raise UserError("the vllm engine needs a Hugging Face folder", found=str(folder), fix="set model.path")
        check_types(folder)
        check_layers(folder)
        self._config, self._folder = config, folder
        model = VisionLanguageModel.of_folder(folder)
        self._images = None if model is None else ImageInput(model, config, context.images)
        self._launch = prepare(
            config,
            folder,
            _dtype(source, context),
            context,
            seed=derive_seed(context.seed, "vllm", source.version),
            more={
                **({} if self._adapter is None else self._adapter.arguments),
                **({} if self._images is None else self._images.arguments),
            },
        )
        self._context: int = self._launch.settings.model_config.max_model_len
        self._vocabulary: int = self._launch.settings.model_config.get_vocab_size()
        self._requests = itertools.count()
        self._closed = False
        self._segment: Segment | None = None
        self._asleep = False
        self._version = source.version
        self._own_version = source.version if source.weights() is None else 0
        """Of the weights that vLLM has loaded itself. A policy in memory had those of its folder at first."""
        try:
            self._llm: AsyncLLM = self._launch.start()
        except BaseException:
            self._launch.close()
            raise

    async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Continue the prompt. Ends with ``length`` at the context limit, without any token if none fits."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        ids = prompt.token_ids.tolist()
        if not ids or not 0 <= min(ids) <= max(ids) < self._vocabulary:
            raise EngineError(f"a prompt needs ids from 0 to {self._vocabulary - 1}, and at least one")
        self._check_usable()
        request = self._request(prompt, ids)
        limit = min(sampling.max_new_tokens, self._context - len(ids))
        if limit <= 0:
            return Completion(
                token_ids=TokenIds(), logprobs=Logprobs(), finish_reason="length", policy_version=self._version
            )
        params = SamplingParams(
            max_tokens=limit,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop_token_ids=list(sampling.stop_token_ids),
            stop=list(sampling.stop),
            include_stop_str_in_output=True,
            detokenize=bool(sampling.stop),
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            logit_bias={token: -math.inf for token in sampling.suppressed_token_ids if token < self._vocabulary}
            or None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        await self._answer(self._prepare())
        llm, serving, version = self._llm, self._serving, self._version
        number = 0 if serving is None else serving.lora_int_id
        self._users[number] += 1
        try:
            final: Any = None
            name = f"{session}-{next(self._requests)}"
            first = -1 if session == CHECK_SESSION else 0
            async for output in llm.generate(request, params, name, lora_request=serving, priority=first):
                final = output
        except EngineDeadError as error:
            raise self._ended(llm) from error
        except ValueError as error:
            raise EngineError(f"vLLM refused the request: {error}") from error
        finally:
            self._users[number] -= 1
        check_expanded(ids, final)
        made = final.outputs[0]
        if made.finish_reason not in {"stop", "length"}:
            raise EngineError(f"vLLM ended the request with {made.finish_reason!r}")
        spans = self._spans(made) if serving is None else ()
        return Completion(
            token_ids=TokenIds(made.token_ids),
            logprobs=Logprobs(made.logprobs.logprobs),
            finish_reason=made.finish_reason,
            policy_version=spans[0].version if spans else version,
            versions=spans if len(spans) > 1 else (),
        )

    def _spans(self, made: CompletionOutput) -> tuple[VersionSpan, ...]:
        """Return the versions of the tokens, which vLLM counts when it pauses."""
        return tuple(
            VersionSpan(self._own_version if one.version == UNNAMED else int(one.version), one.end - one.start)
            for one in made.weight_versions or ()
        )

    def _request(self, prompt: Prompt, ids: list[int]) -> TokensPrompt:
        if not prompt.media:
            return {"prompt_token_ids": ids}
        if self._images is None:
            raise EngineError(f"the model {self._folder} has no images; choose a vision-language model")
        return self._images.request(prompt)

    async def release(self, session: str) -> None:
        """Do nothing. vLLM's prefix cache evicts entries itself."""

    async def load_weights(self, source: WeightSource) -> int:
        """Send the source's weights through shared memory. A vLLM that died is restarted.

        Raises:
            EngineError: vLLM did not load the weights in time. The calls in flight fail, too.
        """
        if self._closed:
            raise EngineError("the engine is closed")
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            await self._load(source)
        except EngineError as error:
            if not isinstance(error.__cause__, EngineDeadError):
                raise
            await self._load(source)  # it died since its last answer
        return source.version

    async def _load(self, source: WeightSource) -> None:
        if self.failure is not None:
            await self._restart()
        if self._adapter is None and source.weights() is None and source.folder == self._folder:
            self._version = self._own_version = source.version  # an evaluation: vLLM has loaded this folder itself
        else:
            await self._transfer(source)
        self.failure = None

    async def _transfer(self, source: WeightSource) -> None:
        try:
            async with asyncio.timeout(self._config.timeout_s):
                await self._answer(self._update(source))
        except TimeoutError:
            raise self._failed(f"vLLM did not load the weights within {self._config.timeout_s:g} s") from None
        except EngineError:
            raise
        except Exception as error:
            words = self._launch.last_words()
            raise self._failed(f"vLLM did not load the weights: {type(error).__name__}: {error}\n{words}") from error

    async def _update(self, source: WeightSource) -> None:
        await self.wake()
        if self._adapter is None:
            await self._send(partial(_tensors, source), source.version)
        else:
            await self._serve(self._adapter.request(source.weights(adapter_only=True)), source.version)

    async def sleep(self) -> None:
        """Release the GPU memory until `wake`, if ``rollout.vllm.sleep`` is set."""
        if self._config.sleep and not self._asleep and self.failure is None:
            self._asleep = True
            await self._answer(self._llm.sleep(level=1))

    async def wake(self) -> None:
        """Acquire the memory again. `generate` and `load_weights` do this automatically."""
        if self._asleep:
            await self._llm.wake_up()
            self._asleep = False

    async def close(self) -> None:
        """End vLLM's process."""
        if not self._closed:
            self._closed = True
            note_processes()
            self._end()
            self._launch.close()
            if self._adapter is not None:
                self._adapter.close()

    async def _send(self, weights: Callable[[], Iterable[NamedTensor]], version: int) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest

        if self._segment is None:
            segment = Segment(weights())
            try:
                info = {"path": str(segment.path), "places": segment.places, "size": segment.size}
                await self._llm.init_weight_transfer_engine(WeightTransferInitRequest(init_info=info))
            finally:
                segment.unlink()
            self._segment = segment
        await run_to_end(self._segment.write, weights())  # other processes may gather the weights meanwhile
        # Without the option to clear its caches, which would also drop normalised images. Requests wait meanwhile.
        await self._llm.pause_generation(mode="keep", clear_cache=False)
        await self._llm.start_weight_update()
        await self._llm.update_weights(WeightTransferUpdateRequest(update_info={}))
        await self._llm.finish_weight_update(str(version))
        # The prefixes of requests in flight would otherwise remain, and be used for new ones.
        await self._llm.reset_prefix_cache(reset_running_requests=True)
        if self._images is not None:
            await self._llm.reset_encoder_cache()
        self._version = version
        await self._llm.resume_generation()

    async def _prepare(self) -> None:
        """Make the calls that a generation may need first. vLLM remembers its tasks, so only the first one asks."""
        await self.wake()
        await self._serve_folder()
        await self._llm.get_supported_tasks()

    async def _answer(self, call: Coroutine[Any, Any, None]) -> None:
        """Wait for a call which vLLM's client would await forever if the process died. Only generations fail then."""
        from vllm.v1.engine.exceptions import EngineDeadError

        task, llm = asyncio.ensure_future(call), self._llm
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
                if llm.errored:
                    raise EngineDeadError
            task.result()
        except EngineDeadError as error:
            raise self._ended(llm) from error
        finally:
            if task.cancel():
                await asyncio.wait({task})

    def _ended(self, llm: AsyncLLM) -> EngineError:
        if llm is not self._llm:
            return EngineError("vLLM's process ended, and was restarted")
        if self.failure in {None, RESTARTED}:
            self.failure = f"vLLM's process ended\n{self._launch.last_words()}"
        return EngineError(self.failure)

    def _failed(self, reason: str) -> EngineError:
        """Fail the calls in flight as well, which vLLM might never answer."""
        from vllm.v1.engine.exceptions import EngineDeadError

        self.failure = reason
        self._llm.output_processor.propagate_error(EngineDeadError())
        return EngineError(reason)

    async def _serve_folder(self) -> None:
        """Serve the adapter of a folder, for which no weights are sent."""
        if self._adapter is not None and self._adapter.folder is not None and self._serving is None:
            async with self._lock:
                if self._serving is None:
                    await self._serve(self._adapter.request(None), self._version)

    async def _serve(self, request: LoRARequest, version: int) -> None:
        """Use another adapter from now on, and remove those that no completion in flight uses.

        The base stays loaded. vLLM keys its caches by the name of an adapter, which is new.
        """
        assert self._adapter is not None
        if not await self._llm.add_lora(request):
            raise EngineError("vLLM did not load the adapter")
        if self._serving is not None:
            self._retired.append(self._serving)
        self._serving, self._version = request, version
        for one in [one for one in self._retired if not self._users[one.lora_int_id]]:
            self._retired.remove(one)
            await self._llm.remove_lora(one.lora_int_id)
            self._adapter.forget(one)

    async def _restart(self) -> None:
        self._end()

        def start() -> None:
            self._llm = self._launch.start()  # here, so that `close` ends it also after a cancellation

        await run_to_end(start)
        self.failure, self._segment, self._asleep, self._serving = RESTARTED, None, False, None
        self._retired.clear()

    def _end(self) -> None:
        # A vLLM that failed may never answer, so it gets one second.
        self._llm.shutdown(timeout=SHUTDOWN_S if self.failure is None else 1.0)

    def _check_usable(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed")
        if self.failure is not None:
            raise EngineError(self.failure)


def _dtype(source: WeightSource, context: EngineContext) -> str:
    """Return the dtype of the live weights, so that sampling and training use the same numbers."""
    if (weights := source.weights()) is not None:
        return next(weights).dtype
    if context.dtype != "auto":
        return context.dtype
    return "bfloat16" if torch.cuda.is_available() and context.device != "cpu" else "float32"


def _tensors(source: WeightSource) -> Iterator[NamedTensor]:
    """Yield every tensor by its checkpoint name. Tied tensors appear once."""
    if (weights := source.weights()) is not None:
        yield from weights
        return
    if source.folder is None:
        raise EngineError("the vllm engine needs weights, but there are none, and no folder")
    from safetensors.torch import load_file

    index = source.folder / INDEX
    for file in indexed_files(index) if index.is_file() else [source.folder / "model.safetensors"]:
        for name, tensor in load_file(file).items():
            yield named(name, tensor)
