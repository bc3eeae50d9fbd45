"""Encoded images from the forms in which data and environments provide them, and safe decoding of untrusted files."""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import DataError, NotInstalledError
from rlcore.images.directories import limit_directories

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 100_000_000
"""Limit of an image before it is decoded. A larger one is a mistake or an attack."""
LARGEST_FILE = 100_000_000
"""Limit of an encoded image in bytes."""
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
"""The formats that are decoded. Others, such as those with embedded programs, are rejected."""
SUFFIXES = {"JPEG": ".jpg", "WEBP": ".webp", "BMP": ".bmp", "GIF": ".gif", "TIFF": ".tiff"}
"""Suffixes of files by format, besides ``.png``."""
PNG_METADATA = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")
"""Chunks of a PNG that can state an orientation. They may follow the pixels, so pillow decodes a PNG to find them."""
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
"""Pixel formats of pillow that PNG can store."""
MOST_GIF_BLOCKS = 5_000
"""Limit of the blocks of comments and other extensions in a GIF. Pillow joins comments one by one: 30,000 take 8 s."""
PHOTO_WITH_PREVIEWS = "MPO"
"""A JPEG of a camera with further pictures behind the photo. It is the photo."""


def encode_image(source: bytes | str | Path | Image, *, folder: Path | None = None) -> bytes:
    """Return the encoded bytes of an image.

    Args:
        source: encoded bytes, a path, a data URI (``data:image/png;base64,…``), or a PIL image, which becomes PNG
        folder: the folder that paths are relative to and must not leave; None accepts any path

    Raises:
        DataError: the file is missing, outside of the folder or too large, the URI is damaged, or the pixels of the PIL
            image are floating-point numbers.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if isinstance(source, str) and source.startswith("data:"):
        return _from_uri(source)
    if isinstance(source, (str, Path)):
        return _from_file(Path(source), folder)
    written = io.BytesIO()
    _check_mode(source)
    drawn = source if source.mode in PNG_MODES else source.convert("I;16" if source.mode == "I" else "RGB")
    drawn.save(written, format="PNG", compress_level=1)
    return written.getvalue()


def check_image(data: bytes) -> None:
    """Decode an image once, at a reduced size where its format allows that, to find damaged files.

    Raises:
        DataError: it is no image of a supported format, it has several frames, or it is too large or damaged.
    """
    image = open_image(data)
    try:
        image.draft("RGB", (image.width // 8, image.height // 8))
        image.load()
    except DataError:
        raise
    except Exception as error:  # damaged files raise every type
        raise _unreadable(data, error) from None


def data_uri(data: bytes) -> str:
    """Return an encoded image as a data URI with its media type.

    Raises:
        DataError: it is no image of a supported format.
    """
    kind = _pillow().MIME[open_image(data).format]
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def image_suffix(data: bytes) -> str:
    """The suffix of the file of an encoded image, such as ``.png``. Raises as `image_size`."""
    return SUFFIXES.get(str(open_image(data).format), ".png")


def image_size(data: bytes) -> tuple[int, int]:
    """Return width and height in pixels, upright, from the header of an encoded image.

    Raises:
        DataError: it is no image of a supported format, or too large.
    """
    image = open_image(data)
    turned = orientation(image, data) in (5, 6, 7, 8)
    return (image.height, image.width) if turned else (image.width, image.height)


def orientation(image: Image, data: bytes) -> int:
    """Return how an opened image is turned or mirrored, 1 to 8 as in EXIF.

    Raises:
        DataError: it cannot be decoded, if it is a PNG with metadata.
    """
    if image.format == "PNG" and not any(mark in data for mark in PNG_METADATA):
        return 1
    try:
        found = image.getexif().get(0x0112, 1)
    except DataError:
        raise
    except Exception as error:  # damaged files raise every type
        raise _unreadable(data, error) from None
    return found if type(found) is int and 1 <= found <= 8 else 1


def open_image(data: bytes) -> Image:
    """Open an encoded image without decoding its pixels.

    Raises:
        DataError: it is no image of a supported format, it has several frames, or it is too large.
    """
    pillow = _pillow()
    try:
        image: Image = pillow.open(io.BytesIO(data), formats=FORMATS)
        if image.format == PHOTO_WITH_PREVIEWS:
            image.format = "JPEG"
        elif getattr(image, "is_animated", False):
            raise DataError(
                "an image must have one frame",
                found=f"{image.format} with several frames",
                fix="choose a frame and save it as PNG",
            )
    except DataError:
        raise
    except pillow.DecompressionBombError as error:
        found = str(error).partition("(")[2].partition(")")[0] or None
        message = f"an image has at most {MOST_PIXELS:,} pixels"
        raise DataError(message, found=found, fix="make it smaller") from None
    except Exception as error:  # damaged files raise every type
        raise _unreadable(data, error) from None
    if image.width * image.height > MOST_PIXELS:
        found = f"{image.width:,} x {image.height:,} pixels"
        raise DataError(f"an image has at most {MOST_PIXELS:,} pixels", found=found, fix="make it smaller")
    _check_mode(image)
    return image


def decode_image(data: bytes) -> Image:
    """Decode an image to 8-bit RGB, upright. Transparent parts become white, 16-bit values are scaled.

    Raises:
        DataError: as `open_image`, or its pixels cannot be decoded.
    """
    from PIL import ImageOps

    image = open_image(data)
    try:
        image.load()
        return _rgb(ImageOps.exif_transpose(image))
    except DataError:
        raise
    except Exception as error:  # damaged files raise every type
        raise _unreadable(data, error) from None


def _check_mode(image: Image) -> None:
    if image.mode == "F":  # its range is not known: 0 to 1, 0 to 255 or any other
        fix = "scale them to 0 to 255, and convert the image to RGB"
        raise DataError("an image must have whole numbers as pixels", found="floating-point numbers", fix=fix)


def _rgb(image: Image) -> Image:
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):
        high = image.convert("I")
        return high.point([min(255, value // 256) for value in range(65536)], "L").convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        clear = image.convert("RGBA")
        page = _pillow().new("RGBA", clear.size, "white")
        page.alpha_composite(clear)
        return page.convert("RGB")  # type: ignore[no-any-return]
    return image.convert("RGB")


def _from_uri(uri: str) -> bytes:
    header, comma, payload = uri.partition(",")
    try:
        if not comma or not header.startswith("data:image/") or not header.endswith(";base64"):
            raise ValueError("no base64 data of an image")
        return base64.b64decode(payload, validate=True)
    except (ValueError, binascii.Error) as error:
        raise DataError(
            "an image in a data URI must look like data:image/png;base64,...",
            found=f"{uri[:40]}... ({error})",
            fix="encode the file with base64",
        ) from None


def _from_file(path: Path, folder: Path | None) -> bytes:
    place = path.expanduser() if folder is None else folder / path
    try:
        if folder is not None and not any(map(place.resolve().is_relative_to, _allowed(folder.resolve()))):
            raise DataError(
                "an image must be inside its folder", found=str(path), where=str(folder), fix="move it there"
            )
        size = place.stat().st_size
        if size > LARGEST_FILE:
            found = f"{size:,} bytes"
            raise DataError(f"an image file has at most {LARGEST_FILE:,} bytes", found=found, where=str(place))
        if not place.is_file():
            raise DataError("an image must be a file", found="another kind of path", where=str(place))
        return place.read_bytes()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a loop, before Python 3.13
        found = (isinstance(error, OSError) and error.strerror) or str(error)
        raise DataError("an image cannot be read", found=found, where=str(place)[:300]) from None


def _allowed(folder: Path) -> Iterator[Path]:
    """The folder, and in the hub's cache also that of the contents, to which the files of a snapshot are links."""
    yield folder
    for snapshots in folder.parents:
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith("datasets--"):
            yield snapshots.with_name("blobs")


def _unreadable(data: bytes, error: Exception) -> DataError:
    found = f"{len(data):,} bytes beginning {data[:8]!r} ({type(error).__name__})"
    return DataError(f"an image must be a readable {', '.join(FORMATS[:-1])} or {FORMATS[-1]}", found=found)


_OF_PILLOW = re.compile(r"PIL\.")


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        from rlcore.plugins.loading import pip_line

        raise NotInstalledError("images need pillow", fix=pip_line(["rlcore-core[images]"])) from None
    # Damaged files and large images are errors of this module. `warnings.catch_warnings` would not be safe in threads.
    if ("ignore", None, Warning, _OF_PILLOW, 0) not in warnings.filters:
        warnings.filterwarnings("ignore", module=_OF_PILLOW.pattern)
    limit_directories()
    _limit_gif_blocks()
    return Image


def _limit_gif_blocks() -> None:
    """Make pillow stop at a GIF with too many blocks before or after its pixels."""
    from PIL.GifImagePlugin import GifImageFile

    data = GifImageFile.data
    if data.__module__ == __name__:
        return

    def limited(file: Any) -> bytes | None:
        if not file._GifImageFile__offset:  # otherwise, it passes over pixels
            file.blocks = getattr(file, "blocks", 0) + 1
            if file.blocks > MOST_GIF_BLOCKS:
                raise DataError(
                    f"a GIF has at most {MOST_GIF_BLOCKS:,} blocks of comments and other extensions",
                    found="more",
                    fix="save the image again without its metadata",
                )
        return data(file)

    GifImageFile.data = limited  # type: ignore[method-assign, assignment]
