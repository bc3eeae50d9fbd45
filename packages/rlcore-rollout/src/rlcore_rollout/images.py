"""The images of trajectories: fitted, hashed and stored once for all siblings of a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import cast

from rlcore.errors import DataError, ExplainedError
from rlcore.images import check_image
from rlcore.types import ImagePart, Message, Part, TextPart, media_hash

Fit = Callable[[bytes], bytes]
"""Returns an encoded image as the model sees it, as `rlcore.images.ImageProcessor.fit`."""


class ImagePool:
    """Encoded images by content hash. Trajectories that share a pool share one ``bytes`` object for equal images.

    Args:
        fit: applied once to each distinct image, in a thread; None keeps images as they are
    """

    def __init__(self, fit: Fit | None = None) -> None:
        self._fit = fit
        self._originals: dict[str, bytes] = {}
        """The images that are not fitted yet."""
        self._images: dict[str, bytes] = {}
        """The images as the model sees them."""
        self._fitted: dict[str, str] = {}
        """The hash of each fitted image by that of its original."""
        self._running: dict[str, asyncio.Future[bytes]] = {}
        self._hashes: dict[int, tuple[bytes, str]] = {}
        """Images with their hashes by the identity of the object, which the entry keeps alive."""

    def add(self, data: bytes, *, lasting: bool = False) -> str:
        """Add an image unless an equal one exists; returns its content hash.

        Args:
            data: the encoded image
            lasting: whether the same object will be added again, so that its hash is remembered
        """
        known = self._hashes.get(id(data))
        if known is not None:
            return known[1]
        name = media_hash(data)
        if lasting:
            self._hashes[id(data)] = (data, name)
        if name not in self._fitted:
            self._originals.setdefault(name, data)
        return name

    async def fitted(self, name: str) -> str:
        """Fit the image with this hash, unless that was done before; returns the hash of the fitted image.

        Raises:
            DataError: it cannot be read.
        """
        if name not in self._fitted:
            data = self._originals[name]
            fitted = data if self._fit is None else await self._run(name, self._fit, data)
            found = media_hash(fitted) if fitted is not data else name
            self._images.setdefault(found, fitted)
            self._fitted[name] = found
            self._originals.pop(name, None)
        return self._fitted[name]

    async def _run(self, name: str, fit: Fit, data: bytes) -> bytes:
        """Fit an image in a thread. Trajectories that need it at the same time wait for one thread."""
        if name not in self._running:
            self._running[name] = asyncio.ensure_future(asyncio.to_thread(fit, data))
        running = self._running[name]
        await asyncio.wait([running])  # a cancelled trajectory does not cancel the others
        return running.result()

    def __getitem__(self, name: str) -> bytes:
        """The fitted image with this content hash."""
        return self._images[name]


class EpisodeImages:
    """The images that the task and the environment of one episode provide.

    Attributes:
        used: the fitted images that messages refer to, by content hash
        tool_errors: the number of tool messages that entered with an unusable image
    """

    def __init__(self, pool: ImagePool, provided: Iterable[bytes] = ()) -> None:
        self.used: dict[str, bytes] = {}
        self.tool_errors = 0
        self._pool = pool
        self._provided = {pool.add(image, lasting=True) for image in provided}

    def add(self, images: Iterable[bytes]) -> None:
        """Add the encoded images that the environment provides.

        Raises:
            TypeError: one of them is not ``bytes``.
        """
        for image in images:
            if not isinstance(image, bytes):
                raise TypeError(f"an image must be bytes, not {type(image).__name__}")
            self._provided.add(self._pool.add(image))

    async def enter(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Fit the images that the messages refer to; returns the messages with references to the fitted images.

        The call of a tool can cause an unusable image, such as a part of a picture that is too narrow. In a tool
        message, such an image becomes a text with the reason, so that the model can try again.

        Raises:
            LookupError: the bytes of an image were not provided.
            ValueError: an image of another message cannot be read.
        """
        return tuple([await self._entered(message) for message in messages])

    async def _entered(self, message: Message) -> Message:
        parts: dict[str, Part] = {}
        for name in message.images:
            try:
                parts[name] = ImagePart(sha256=await self._fitted(name, message.role))
            except ExplainedError as error:
                reason = error.message + (f": {error.found}" if error.found else "")
                if message.role != "tool" or not isinstance(error, DataError):
                    text = f"the image {name[:12]}… in a {message.role} message is unusable; {reason}"
                    raise ValueError(text) from error
                parts[name] = TextPart(text=f"\nError: the image cannot be shown; {reason}.\n")
        self.tool_errors += any(isinstance(part, TextPart) for part in parts.values())
        if all(part == ImagePart(sha256=name) for name, part in parts.items()):
            return message
        content = cast("tuple[Part, ...]", message.content)  # with images, it has parts
        shown = tuple(parts[part.sha256] if isinstance(part, ImagePart) else part for part in content)
        return replace(message, content=shown)

    async def _fitted(self, name: str, role: str) -> str:
        """Return the hash of the fitted image for that of a provided one, or of one that is fitted already."""
        if name in self._provided:
            found = await self._pool.fitted(name)
            self.used[found] = self._pool[found]
            return found
        if name not in self.used:
            raise LookupError(f"a {role} message refers to the image {name[:12]}…, which is not provided")
        return name

    def of(self, messages: Iterable[Message]) -> Mapping[str, bytes]:
        """The fitted images that entered messages refer to, by content hash."""
        return {name: self.used[name] for message in messages for name in message.images}


def checked(data: bytes) -> bytes:
    """Return an encoded image unchanged.

    Raises:
        DataError: it is unreadable.
    """
    check_image(data)
    return data
