"""Images: safe decoding, fitted sizes, and rotary positions."""

from __future__ import annotations

import base64
import io
import random
import struct
import tracemalloc
import zlib
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rlcore.errors import DataError
from rlcore.images import ImageProcessor, check_image, data_uri, encode_image, image_size
from rlcore.images.encoding import MOST_GIF_BLOCKS, decode_image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    written = io.BytesIO()
    image.save(written, format=kind, **options)
    return written.getvalue()


def decoded(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_an_image_that_fits_keeps_its_bytes() -> None:
    data = encoded(Image.new("RGB", (112, 84), "red"))
    assert ImageProcessor().fit(data) is data


@pytest.mark.parametrize("size", [(1, 1), (100, 37), (3000, 2000), (10, 1990), (4, 800)])
def test_a_fitted_image_has_the_announced_size_and_fits(size: tuple[int, int]) -> None:
    processor = ImageProcessor(max_pixels=200_000)
    fitted = processor.fit(encoded(Image.new("RGB", size, "blue")))
    assert image_size(fitted) == processor.fitted_size(*size)
    rows, columns = processor.tokens(*size)
    assert (columns * 28, rows * 28) == image_size(fitted)
    assert processor.fit(fitted) is fitted


def test_fitting_again_changes_only_images_outside_of_the_limits() -> None:
    rng = random.Random(0)
    stable = 0
    for _ in range(2000):
        least, most = sorted(rng.randrange(784, 100_000) for _ in range(2))
        processor = ImageProcessor(min_pixels=least, max_pixels=most)
        width = rng.randrange(1, 2000)
        fitted = processor.fitted_size(width, rng.randrange(-(-width // 200), min(2000, 200 * width) + 1))
        within = least <= fitted[0] * fitted[1] <= most
        stable += within
        assert not within or processor.fitted_size(*fitted) == fitted
    assert stable > 1000


@pytest.mark.parametrize(
    ("size", "limits", "first", "again"),
    [
        ((2800, 28), (784, 3136), (560, 28), (224, 28)),
        ((100, 100), (12_000, 12_100), (84, 84), (112, 112)),
    ],
    ids=["narrow", "close limits"],
)
def test_tokens_of_a_fitted_image_outside_of_the_limits_are_exact(
    size: tuple[int, int], limits: tuple[int, int], first: tuple[int, int], again: tuple[int, int]
) -> None:
    processor = ImageProcessor(min_pixels=limits[0], max_pixels=limits[1])
    fitted = processor.fit(encoded(Image.new("RGB", size, "blue")))
    assert image_size(fitted) == first
    assert processor.grid(fitted) == (first[1] // 28, first[0] // 28)
    assert image_size(processor.fit(fitted)) == again


@pytest.mark.parametrize(
    ("mode", "color", "expected"),
    [
        ("L", 100, (100, 100, 100)),
        ("1", 1, (255, 255, 255)),
        ("RGBA", (255, 0, 0, 0), (255, 255, 255)),
        ("LA", (7, 255), (7, 7, 7)),
        ("I;16", 256 * 99 + 3, (99, 99, 99)),
        ("P", 0, (0, 0, 0)),
    ],
)
def test_other_colour_modes_become_rgb(mode: str, color: Any, expected: tuple[int, ...]) -> None:
    image = decoded(ImageProcessor().fit(encoded(Image.new(mode, (56, 56), color))))
    assert image.mode == "RGB"
    assert image.getpixel((0, 0)) == expected


def test_cmyk_becomes_rgb() -> None:
    data = encoded(Image.new("CMYK", (56, 56), (0, 0, 0, 255)), "JPEG")
    assert decoded(ImageProcessor().fit(data)).getpixel((0, 0)) == (0, 0, 0)


def test_a_rotated_photo_becomes_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(Image.new("RGB", (112, 56), "green"), "JPEG", exif=exif)
    assert image_size(data) == (56, 112)
    assert decoded(ImageProcessor().fit(data)).size == (56, 112)


def test_a_rotated_png_becomes_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(Image.new("RGB", (112, 56), "green"), exif=exif)
    assert image_size(data) == (56, 112)
    assert decoded(ImageProcessor().fit(data)).size == (56, 112)


def test_the_size_of_a_png_is_known_before_its_pixels_are_decoded() -> None:
    data = encoded(Image.effect_noise((560, 280), 50))
    assert image_size(data[:2000]) == (560, 280)
    with pytest.raises(DataError):
        ImageProcessor().fit(data[:2000])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not an image",
        encoded(Image.effect_noise((56, 56), 50), "JPEG")[:300],
        encoded(Image.new("RGB", (3, 1000))),
        encoded(Image.new("RGB", (56, 56)), "GIF", save_all=True, append_images=[Image.new("RGB", (56, 56), "red")]),
        encoded(Image.new("1", (20_000, 20_000))),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 56 56\n",
    ],
    ids=["empty", "text", "truncated", "extreme sides", "animated", "decompression bomb", "program"],
)
def test_unusable_images_are_rejected(data: bytes) -> None:
    with pytest.raises(DataError):
        ImageProcessor().fit(data)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"])
def test_damaged_files_are_data_errors_or_fit(kind: str) -> None:
    rng, processor = random.Random(kind), ImageProcessor(max_pixels=16 * 28 * 28)
    frames = [Image.effect_noise((16, 12), spread).convert("RGB") for spread in (10, 90)]
    options = {"save_all": True, "append_images": frames[1:]} if kind in ("GIF", "TIFF") else {}
    for seed in (encoded(frames[0], kind), encoded(frames[0], kind, **options)):
        for _ in range(60):
            damaged = bytearray(seed)
            for _ in range(rng.randrange(1, 20)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            try:
                fitted = processor.fit(bytes(damaged[: rng.choice([None, rng.randrange(len(damaged))])]))
            except DataError:
                continue
            assert processor.grid(fitted)
            assert processor.fit(fitted) is fitted


def directory(kind: str, size: int) -> bytes:
    """Metadata whose entries all refer to the same bytes."""
    count = size // 24
    extra = {
        "TIFF": [(256, 3, 1, 1), (257, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, 1), (279, 4, 1, 1)],
        "MPO": [(0xB001, 4, 1, 2), (0xB002, 7, 32, 8)],
    }.get(kind, [])
    entries = sorted(extra + [(tag, 7, size, 0) for tag in range(1000, 1000 + count)])
    packed = b"".join(struct.pack("<HHLL", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<LH", 8, len(entries)) + packed.ljust(size, b"\0")


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))


def with_directory(kind: str) -> bytes:
    """A small image with hostile metadata, for which a decoder would allocate hundreds of megabytes."""
    image, exif = Image.new("RGB", (56, 56), "red"), b"Exif\0\0"
    if kind == "TIFF":
        return directory(kind, 100_000)
    if kind.startswith("PNG"):
        profile = directory(kind, 100_000)
        if kind == "PNG":
            inserted = chunk(b"eXIf", profile)
        else:
            text = f"\nexif\n{len(profile)}\n{profile.hex()}".encode()
            inserted = chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(text))
        data = encoded(image)
        return data[:33] + inserted + data[33:]
    if kind == "WEBP":
        return encoded(image, kind, exif=exif + directory(kind, 100_000))
    data, profile = encoded(image, "JPEG"), (exif if kind == "JPEG" else b"MPF\0") + directory(kind, 64_000)
    marker = b"\xff\xe1" if kind == "JPEG" else b"\xff\xe2"
    return data[:2] + marker + struct.pack(">H", len(profile) + 2) + profile + data[2:]


@pytest.mark.parametrize("kind", ["PNG", "PNG text", "TIFF", "MPO", "JPEG", "WEBP"])
def test_entries_that_share_bytes_do_not_take_memory(kind: str) -> None:
    data = with_directory(kind)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="same bytes") if kind != "MPO" else nullcontext():
            ImageProcessor().fit(data)
        for use in (check_image, image_size, data_uri):  # some of them do not read the metadata
            with suppress(DataError):
                use(data)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("comments", "size"),
    [(1, 30_000), (1_000_000, 1)],
    ids=["one long comment", "many short comments"],
)
@pytest.mark.parametrize("before", [True, False])
def test_comments_of_a_gif_have_a_limit(comments: int, size: int, before: bool) -> None:
    data = encoded(Image.new("L", (8, 8)), "GIF")
    start = data.index(b",") if before else len(data) - 1
    comment = b"!\xfe" + (b"\xffa" + b"b" * 254) * size + b"\0" if size > 1 else b"!\xfe\x01a\0"
    with pytest.raises(DataError, match="blocks of comments"):
        image_size(data[:start] + comment * comments + data[start:])
    assert image_size(data[:start] + comment[: 2 + 2 * 256] + b"\0" + data[start:]) == (8, 8)


def test_a_large_gif_with_a_comment_is_decoded() -> None:
    image = Image.frombytes("L", (1500, 1500), random.Random(0).randbytes(1500**2))
    data = encoded(image, "GIF", comment=b"x" * 1000)
    assert len(data) > 255 * MOST_GIF_BLOCKS
    assert decode_image(data).size == image_size(data) == (1500, 1500)


def test_a_photo_with_previews_is_the_photo() -> None:
    photo, preview = Image.new("RGB", (56, 56), "green"), Image.new("RGB", (28, 28), "red")
    data = encoded(photo, "MPO", save_all=True, append_images=[preview])
    assert decoded(ImageProcessor().fit(data)).getpixel((5, 5)) == (0, 128, 1)
    assert data_uri(data).startswith("data:image/jpeg;base64,")


def test_floating_point_pixels_are_rejected() -> None:
    with pytest.raises(DataError, match="whole numbers"):
        encode_image(Image.new("F", (56, 56), 0.5))
    with pytest.raises(DataError, match="whole numbers"):
        check_image(encoded(Image.new("F", (56, 56), 0.5), "TIFF"))


def test_a_pil_image_with_32_bits_keeps_16() -> None:
    data = encode_image(Image.new("I", (56, 56), 256 * 99))
    assert decoded(ImageProcessor().fit(data)).getpixel((5, 5)) == (99, 99, 99)


def test_images_are_read_from_paths_uris_and_pil(tmp_path: Path) -> None:
    data = encoded(Image.new("RGB", (56, 56), "red"))
    (tmp_path / "a.png").write_bytes(data)
    assert encode_image("a.png", folder=tmp_path) == encode_image(tmp_path / "a.png") == encode_image(data) == data
    assert encode_image("data:image/png;base64," + base64.b64encode(data).decode()) == data
    assert decoded(encode_image(Image.new("RGB", (56, 56), "red"))).getpixel((5, 5)) == (255, 0, 0)


@pytest.mark.parametrize("path", ["../secret.png", "/etc/passwd", "missing.png", "link.png", "loop.png", "."])
def test_paths_that_leave_the_folder_or_are_no_files_are_rejected(path: str, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(b"secret")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "loop.png").symlink_to("loop.png")
    with pytest.raises(DataError):
        encode_image(path, folder=folder)


@pytest.mark.parametrize("uri", ["data:text/plain;base64,AA==", "data:image/png;base64,!!", "data:image/png,AA"])
def test_damaged_data_uris_are_rejected(uri: str) -> None:
    with pytest.raises(DataError):
        encode_image(uri)
