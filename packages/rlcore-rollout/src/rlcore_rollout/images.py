"""The images of trajectories, hashed and stored once for all siblings of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlcore.types import Message, media_hash


class ImagePool:
    """Encoded images by content hash. Trajectories that share a pool share one ``bytes`` object for equal images."""

    def __init__(self) -> None:
        self._images: dict[str, bytes] = {}
        self._hashes: dict[int, str] = {}
        """The hash of each image in the pool by the identity of its object, which the pool keeps alive."""

    def add(self, data: bytes) -> str:
        """Add an image unless an equal one exists; returns its content hash."""
        if (known := self._hashes.get(id(data))) is not None:
            return known
        name = media_hash(data)
        if self._images.setdefault(name, data) is data:
            self._hashes[id(data)] = name
        return name

    def __getitem__(self, name: str) -> bytes:
        """The image with this content hash."""
        return self._images[name]


class EpisodeImages:
    """The images that the task and the environment of one episode provide.

    Attributes:
        used: the images that messages refer to, by content hash
    """

    def __init__(self, pool: ImagePool, provided: Iterable[bytes] = ()) -> None:
        self.used: dict[str, bytes] = {}
        self._pool = pool
        self._provided: set[str] = set()
        self.add(provided)

    def add(self, images: Iterable[bytes]) -> None:
        """Add the encoded images that the environment provides.

        Raises:
            TypeError: one of them is not ``bytes``.
        """
        for image in images:
            if not isinstance(image, bytes):
                raise TypeError(f"an image must be bytes, not {type(image).__name__}")
            self._provided.add(self._pool.add(image))

    def of(self, messages: Iterable[Message]) -> Mapping[str, bytes]:
        """The images that the messages refer to, by content hash. They are marked as used.

        Raises:
            LookupError: the bytes of an image were not provided.
        """
        found: dict[str, bytes] = {}
        for message in messages:
            for name in message.images:
                if name not in self._provided:
                    raise LookupError(
                        f"a {message.role} message refers to the image {name[:12]}…, which is not provided"
                    )
                found[name] = self._pool[name]
        self.used |= found
        return found
