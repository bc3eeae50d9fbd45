"""Images in vLLM: one placeholder token for each, the fitted image, and the check that vLLM expanded them as we did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlcore.errors import DataError, EngineError
from rlcore.images import ImageProcessor, image_size
from rlcore.images.encoding import open_image

if TYPE_CHECKING:
    from PIL.Image import Image
    from rlcore.models.vision_language import VisionLanguageModel
    from rlcore.types import MediaSpan, Prompt
    from vllm.inputs import TokensPrompt

    from rlcore_rollout.engines.vllm.config import VllmEngineConfig


class ImageInput:
    """The prompts of a vision-language model in the form that vLLM accepts."""

    def __init__(
        self, model: VisionLanguageModel, config: VllmEngineConfig, processor: ImageProcessor | None = None
    ) -> None:
        """Use the processor with the limits of the run, or that of the model's folder."""
        self._placeholder = model.placeholder
        self._processor = processor or model.processor
        self._most = config.max_images
        # Images are fitted already: vLLM must not resize them, and must have room for the largest.
        size = {"shortest_edge": self._processor.min_pixels, "longest_edge": self._processor.max_pixels}
        self.arguments = {
            "limit_mm_per_prompt": {"image": config.max_images, "video": 0},
            "mm_processor_kwargs": {"do_resize": False, "size": size},
            "mm_processor_cache_gb": config.image_cache_gib,
        }
        """Arguments with which vLLM must start."""

    def request(self, prompt: Prompt) -> TokensPrompt:
        """Return the prompt with one placeholder for each image. Images are decoded when vLLM needs their pixels.

        Raises:
            EngineError: there are too many images, or one is missing or does not have the size of its tokens.
        """
        if len(prompt.media) > self._most:
            raise EngineError(
                f"a prompt has {len(prompt.media)} images, but vLLM accepts {self._most}; set rollout.vllm.max_images"
            )
        images = [self._image(span, prompt) for span in prompt.media]
        names: Sequence[str | None] = [span.sha256 for span in prompt.media]
        return {
            "prompt_token_ids": collapsed(prompt.token_ids.tolist(), prompt.media),
            "multi_modal_data": {"image": images},
            "multi_modal_uuids": {"image": names},
        }

    def _image(self, span: MediaSpan, prompt: Prompt) -> Image:
        data = prompt.images.get(span.sha256)
        if data is None:
            raise EngineError(f"the prompt lacks the bytes of its image {span.sha256[:12]}")
        end = span.offset + span.length
        if any(token != self._placeholder for token in prompt.token_ids[span.offset : end]) or end > len(prompt):
            raise EngineError(f"the tokens {span.offset} to {end} of an image must be {self._placeholder}")
        side = self._processor.token_side
        wanted = (span.columns * side, span.rows * side)
        try:
            found = image_size(data)
            if found != wanted or span.rows * span.columns != span.length:
                raise EngineError(
                    f"an image of {span.rows} x {span.columns} visual tokens in {span.length} places must be fitted to "
                    f"{wanted[0]} x {wanted[1]} pixels, found {found[0]} x {found[1]}"
                )
            return open_image(data)
        except DataError as error:
            raise EngineError(str(error)) from None


def collapsed(ids: Sequence[int], media: Sequence[MediaSpan]) -> list[int]:
    """Return the token ids with the first token only of each image."""
    kept: list[int] = []
    done = 0
    for span in media:
        kept += ids[done : span.offset + 1]
        done = span.offset + span.length
    return [*kept, *ids[done:]]


def check_expanded(expected: Sequence[int], output: Any) -> None:
    """Raise `EngineError` unless vLLM computed with exactly our token ids."""
    found = output.prompt_token_ids
    if found == expected:
        return
    place = next(
        (at for at, (own, other) in enumerate(zip(expected, found, strict=False)) if own != other),
        min(len(expected), len(found)),
    )
    raise EngineError(
        f"vLLM computed with {len(found)} tokens instead of {len(expected)}, different from position {place} on: a "
        "placeholder token that belongs to no image, or an image of another size"
    )
