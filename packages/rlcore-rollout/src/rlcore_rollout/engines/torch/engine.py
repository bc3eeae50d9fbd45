"""`TorchEngine`: many concurrent ``generate`` calls over one `Scheduler`, driven by a dedicated thread.

The thread runs steps for as long as there is work, which keeps the event loop free for tools.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from rlcore.errors import EngineError, UserError
from rlcore.images import ImageProcessor
from rlcore.models.freed_memory import return_freed_memory
from rlcore.timing import add_time
from rlcore.types import Completion, Logprobs, Prompt, Sampling, TokenIds
from rlcore_models.thread_teams import release_thread_team
from rlcore_models.vision_encoder import vision_tower

from rlcore_rollout.engines.torch.generic import PlainScheduler
from rlcore_rollout.engines.torch.row_probe import independent_rows
from rlcore_rollout.engines.torch.scheduler import ANY_ROWS, Scheduler
from rlcore_rollout.engines.torch.sequences import Sequence, StopTexts, load_tokenizer
from rlcore_rollout.engines.torch.vision import ImageEncoder
from rlcore_rollout.engines.torch.weights import (
    VISION_FAMILIES,
    Weights,
    model_of,
    outline,
    read_weights,
    separate,
    separated,
    unsupported,
)

if TYPE_CHECKING:
    from rlcore.contracts import WeightSource
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

    from rlcore_rollout.engines.context import EngineContext
    from rlcore_rollout.engines.torch.config import TorchEngineConfig

SETTLE_S = 0.0005
"""An idle engine waits this long for more calls after the first, and again while more arrive."""
NO_LIMIT = 2**31 - 1
"""Length of a context in tokens of a model that does not state one."""
SETTLE_TIMES = 20
"""Maximum number of such waits."""


class TorchEngine:
    """An in-process engine that samples from the trainer's own weights (`rlcore.contracts.Engine`).

    In deterministic mode the bits of a completion depend only on the session's calls, the sampling parameters and the
    weights. They do not depend on which other sequences are generated, in which order, or when. For this reason a
    session's cache is kept, in its row or parked, until `release`, a cancellation or an error: recomputing the tokens
    of an earlier turn in one pass instead of one by one would change the last bits. A different number of threads or a
    different machine may produce different bits.

    New weights take effect between two tokens. Completions in flight keep what is computed, and continue with the new
    weights; everything that begins later is computed with them from the beginning. The trainer may change its weights
    while the engine samples if the context says so: the engine then has a copy, and a second one while it is replaced.
    """

    def __init__(self, config: TorchEngineConfig, source: WeightSource, context: EngineContext):
        self._engine_context, self._folder = context, source.folder
        self._tokenizer: Tokenizer | None = None
        self._scheduler: Scheduler | PlainScheduler
        self._live = source.weights() is not None
        """Whether the model shares the memory of the trainer's, apart from what `separate` copied."""
        self._owns = self._live and context.sampled_during_updates
        """Whether what samples is a copy of the trainer's weights."""
        self._model = module = model_of(source, context)
        self._encoder: ImageEncoder | None = None
        self._blind = ""
        """Why prompts must not have images; empty if they may."""
        if reason := unsupported(module):
            own = self._sample_plainly(module, reason)
        else:
            own = self._sample_in_batches(module, config)
        self._context = own if context.max_context_tokens is None else min(own, context.max_context_tokens)
        self._scheduler.version = source.version
        self._asleep = False
        self._condition = threading.Condition()
        self._inbox: list[Callable[[], None]] = []
        self._pending: dict[Sequence, None] = {}
        self._thread: threading.Thread | None = None
        self._closed = False
        release_thread_team()

    def _sample_plainly(self, module: PreTrainedModel, reason: str) -> int:
        """Sample with the module's own forward pass. Returns the maximum context length."""
        logging.getLogger(__name__).warning(
            "the torch engine samples %s one sequence at a time, because %s; rollout.engine=vllm is faster",
            type(module).__name__,
            reason,
        )
        self.deterministic = True
        if self._owns:
            separate(module)
        self._blind = f"{type(module).__name__}, and {reason}"
        embeddings: Any = module.get_input_embeddings()
        self._vocabulary = int(embeddings.num_embeddings)
        self._scheduler = PlainScheduler(module)
        return int(module.config.get_text_config().to_dict().get("max_position_embeddings") or NO_LIMIT)

    def _sample_in_batches(self, module: PreTrainedModel, config: TorchEngineConfig) -> int:
        """Sample with the decoder. Returns the maximum context length."""
        weights = self._read(module)
        self.deterministic = _decide(config.deterministic, weights.device)
        rows = independent_rows(weights, config.slots) if self.deterministic else None
        if self.deterministic and rows is None:
            if config.deterministic:
                raise UserError(
                    "rollout.torch.deterministic needs matrix products that do not depend on the number of rows",
                    found=f"products in {weights.dtype} on this {weights.device.type} that differ",
                    fix="set rollout.torch.deterministic = false",
                )
            logging.getLogger(__name__).warning(
                "sampling is not bit-reproducible on this machine: products in %s depend on the number of rows"
                " (threads: %d; another OMP_NUM_THREADS may help)",
                str(weights.dtype).removeprefix("torch."),
                torch.get_num_threads(),
            )
            self.deterministic = False
        self._vocabulary = weights.shape.vocabulary
        if weights.axes_F is None:
            self._blind = f"{type(module).__name__}, a text model"
        elif (images := self._image_processor()) is None:
            self._blind = f"{type(module).__name__} without preprocessor_config.json"
        else:
            self._encoder = ImageEncoder(module, images, deterministic=self.deterministic)
        with torch.inference_mode():
            self._scheduler = Scheduler(
                weights,
                config.slots,
                keep_all=self.deterministic,
                rows=rows or ANY_ROWS,
                encoder=self._encoder,
            )
        return weights.shape.context

    def _image_processor(self) -> ImageProcessor | None:
        """Return the processor that fits the images of the run, or that of the model's folder."""
        if self._engine_context.images is not None or self._folder is None:
            return self._engine_context.images
        return ImageProcessor.of_folder(self._folder)

    async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Continue the prompt. Ends with ``length`` at the context limit, without any token if none fits."""
        if prompt.media:
            self._check_images(prompt)
        ids = prompt.token_ids
        if not ids or not 0 <= min(ids) <= max(ids) < self._vocabulary:
            raise EngineError(f"a prompt needs ids from 0 to {self._vocabulary - 1}, and at least one")
        limit = min(sampling.max_new_tokens, self._context - len(prompt))
        if limit <= 0:
            return Completion(
                token_ids=TokenIds(),
                logprobs=Logprobs(),
                finish_reason="length",
                policy_version=self._scheduler.version,
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()

        def settle(result: Completion | EngineError) -> None:
            if future.done():
                return
            if isinstance(result, EngineError):
                future.set_exception(result)
            else:
                future.set_result(result)

        def finish(result: Completion | EngineError) -> None:
            if self._take(sequence) and not loop.is_closed():
                loop.call_soon_threadsafe(settle, result)

        stop_texts = self._stop_texts(sampling.stop) if sampling.stop else None
        sequence = Sequence(
            prompt=prompt, sampling=sampling, session=session, limit=limit, finish=finish, stop_texts=stop_texts
        )
        start, began = time.time(), time.perf_counter()
        with self._condition:
            if self._closed:
                raise EngineError("the engine is closed")
            self._pending[sequence] = None
            self._send(lambda: self._scheduler.submit(sequence))
        try:
            return await future
        finally:
            if sequence.admitted is not None:
                add_time("engine_queue", "", start, sequence.admitted - began)
            if self._take(sequence):
                sequence.cancelled = True

    async def release(self, session: str) -> None:
        """Drop the session's cache."""
        with self._condition:
            if not self._closed:
                self._send(lambda: self._scheduler.release(session))

    async def load_weights(self, source: WeightSource) -> int:
        """Load the source's weights. They are prepared in another thread if the engine samples meanwhile."""
        with self._condition:
            if self._closed:
                raise EngineError("the engine is closed")
            samples = self._owns or bool(self._pending)
        live, version = source.weights() is not None, source.version  # the next update of the trainer changes it
        before = self._model if live and self._live else None
        if samples:  # perhaps with the module
            before = None if before is None else outline(before)
            module, weights = await asyncio.to_thread(self._prepare, source, before)
        else:
            module, weights = self._prepare(source, before)
        with self._condition:
            if self._closed:
                raise EngineError("the engine is closed")
            self._send(lambda: self._change(module, weights, live, version))
        return version

    def _prepare(self, source: WeightSource, before: PreTrainedModel | None) -> tuple[PreTrainedModel, Weights | None]:
        """Return a module with the source's weights, and these as the decoder reads them if it does."""
        module = model_of(source, self._engine_context, before)
        weights = None
        if isinstance(self._scheduler, Scheduler):
            weights = self._read(module)
        elif self._owns:
            separate(module)
        release_thread_team()  # reading weights computes in the caller's thread
        return module, weights

    def _read(self, module: PreTrainedModel) -> Weights:
        """Return the weights of a module as the decoder reads them."""
        weights = read_weights(module)
        if self._owns:
            weights = separated(weights, module)
            if weights.axes_F is not None:
                separate(vision_tower(module))
        return weights

    async def sleep(self) -> None:
        """Free the caches and copies of weights while the trainer updates. Not allowed while calls are in flight.

        Sessions are forgotten. The engine continues to serve calls and needs no waking.
        """
        loop = asyncio.get_running_loop()
        freed = asyncio.Event()

        def free() -> None:
            try:
                if self._live and not self._owns and isinstance(self._scheduler, Scheduler):
                    self._scheduler.load(read_weights(self._model, copy=False))
                    self._asleep = True
                else:
                    self._scheduler.reset()
                return_freed_memory()
            finally:
                loop.call_soon_threadsafe(freed.set)

        with self._condition:
            if self._pending:
                raise EngineError(f"the caches cannot be freed while {len(self._pending)} generations are in flight")
            if self._closed or self._thread is None:
                return
            self._send(free)
        await freed.wait()

    async def close(self) -> None:
        """Fail the calls in flight, stop the thread and free the caches."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.join)

    def _check_images(self, prompt: Prompt) -> None:
        if self._encoder is None:
            families = ", ".join(VISION_FAMILIES)
            raise EngineError(f"the torch engine accepts images for {families}, but the model is {self._blind}")
        self._encoder.check(prompt)

    def _stop_texts(self, texts: tuple[str, ...]) -> StopTexts:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._folder)
        return StopTexts(self._tokenizer, texts)

    def _take(self, sequence: Sequence) -> bool:
        """Return whether the call was still unanswered. A caller that receives True must answer it."""
        with self._condition:
            unanswered = sequence in self._pending
            self._pending.pop(sequence, None)
            return unanswered

    def _send(self, message: Callable[[], None]) -> None:
        """Queue work for the thread to run between two steps. The caller holds the condition."""
        self._inbox.append(message)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rlcore-torch-engine", daemon=True)
            self._thread.start()
        self._condition.notify_all()

    # The methods below run in the engine's own thread.

    def _change(self, module: PreTrainedModel, weights: Weights | None, live: bool, version: int) -> None:
        if isinstance(self._scheduler, PlainScheduler):
            self._scheduler.change(module, version)
        else:
            assert weights is not None
            self._scheduler.change(weights, version)
        self._model, self._live, self._asleep = module, live, False
        if self._encoder is not None:
            self._encoder.module = module
        return_freed_memory()

    @torch.inference_mode()
    def _run(self) -> None:
        while True:
            if idle := not self._scheduler.busy:
                release_thread_team()
            with self._condition:
                self._condition.wait_for(lambda: self._inbox or self._scheduler.busy or self._closed)
                if self._closed:
                    break
            if idle:
                self._settle()
            try:
                self._receive()
                self._wake()
                self._scheduler.step()
            except Exception as error:
                self._fail(error)
        self._scheduler.reset()
        for sequence in list(self._pending):
            sequence.finish(EngineError("the engine was closed"))

    def _wake(self) -> None:
        """Copy the weights again if there is work after a sleep without new weights."""
        if self._asleep and self._scheduler.busy and isinstance(self._scheduler, Scheduler):
            self._scheduler.load(read_weights(self._model))
            self._asleep = False

    def _settle(self) -> None:
        for _ in range(SETTLE_TIMES):
            seen = len(self._inbox)
            time.sleep(SETTLE_S)
            if seen == len(self._inbox):
                return

    def _receive(self) -> None:
        with self._condition:
            messages, self._inbox = self._inbox, []
        for message in messages:
            message()

    def _fail(self, error: Exception) -> None:
        """Answer every call with the error and reset the scheduler."""
        for sequence in list(self._pending):
            failure = EngineError(f"the forward pass failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            sequence.cancelled = True
            sequence.finish(failure)
        self._scheduler.reset()


def _decide(wanted: bool | None, device: torch.device) -> bool:
    if wanted is None:
        return device.type == "cpu"
    return wanted
