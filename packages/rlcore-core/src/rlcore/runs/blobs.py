"""Storage of images: each one is stored once under its content hash."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from rlcore.atomic_files import sweep, told
from rlcore.errors import DataError
from rlcore.types import media_hash

_NAME = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    """A folder of files named by the SHA-256 of their content: ``ab/abcd…``.

    Several processes may write to it concurrently. The folder is created with the first blob.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        """The path of the blob with this hash, whether it exists or not.

        Raises:
            DataError: the name is not a hash. This also rejects paths outside of the folder.
        """
        if not _NAME.fullmatch(sha256):
            found = sha256 if len(sha256) <= 80 else f"{sha256[:77]}..."
            raise DataError("an image name must be 64 hexadecimal digits", found=repr(found), where=str(self.folder))
        return self.folder / sha256[:2] / sha256

    def put(self, data: bytes) -> str:
        """Store the bytes unless they are stored already; returns their hash.

        Raises:
            UserError: they cannot be written.
        """
        sha256 = media_hash(data)
        path = self.path(sha256)
        with suppress(OSError):
            if path.stat().st_size == len(data):
                return sha256
        partial = path.with_name(f".{sha256}.{os.getpid()}-{secrets.token_hex(4)}.partial")
        try:
            with told(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(data)
                partial.replace(path)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        return sha256

    def get(self, sha256: str) -> bytes:
        """The bytes of a hash.

        Raises:
            DataError: the blob is missing, or its content does not have this hash.
        """
        path = self.path(sha256)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DataError(
                f"the image {sha256} cannot be read",
                found=error.strerror or str(error),
                where=str(path),
                fix="copy the folder media/ together with the rollouts",
            ) from None
        if media_hash(data) != sha256:
            raise DataError(
                f"the image {sha256} is damaged",
                found=f"content with the hash {media_hash(data)}",
                where=str(path),
                fix="restore the file",
            )
        return data

    def sweep(self) -> None:
        """Remove unfinished files of killed processes."""
        for folder in self.folder.glob("??"):
            sweep(folder)
