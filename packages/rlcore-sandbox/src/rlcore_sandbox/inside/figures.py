"""The images that a cell shows: figures of matplotlib and images of pillow, in the order in which they are shown.

Both libraries are optional. `Shown` replaces ``plt.show``, ``Figure.show`` and ``Image.show`` with functions that add
to it, and adds the function ``display`` of notebooks, also as a member of ``IPython.display``.
"""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

EXTREME = 200
"""An image whose sides differ by more than this factor is not shown: vision-language models reject it."""


class Shown:
    """The images of one cell.

    Args:
        bind: called with the number of an image in its cell and the image; it makes the image a variable
        most: the most images of a cell; further ones are counted
        pixels: of an image; a larger one is reduced
    """

    def __init__(self, bind: Callable[[int, Any], None], *, most: int, pixels: int) -> None:
        self._bind, self._most, self._pixels = bind, most, pixels
        self.encoded: list[bytes] = []
        self.omitted = 0
        """The number of images above `most`."""
        self.notes: list[str] = []
        """Why images are not shown, for the code that shows them."""

        def show(*arguments: object, **options: object) -> None:
            """Show all open figures."""
            self.show_open_figures()

        self._show = show  # a plain function, because matplotlib sets attributes of it

    def begin(self) -> None:
        """Begin a cell."""
        self.encoded, self.omitted, self.notes = [], 0, []
        self.install()

    def install(self) -> None:
        """Replace the functions of the libraries. Repeated before each cell, as code may replace them too."""
        builtins.display = self.display  # type: ignore[attr-defined]
        sys.modules.update(_notebook_modules(self.display))
        if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
            pyplot.show = self._show  # type: ignore[attr-defined]
            sys.modules["matplotlib.figure"].Figure.show = lambda figure, warn=True: self.figure(figure)
        if (pillow := sys.modules.get("PIL.Image")) is not None:
            pillow.Image.show = lambda image, title=None, **options: self.image(image)

    def add(self, value: object) -> bool:
        """Show a value if it is an image or a figure, and return whether it is one."""
        pillow, figures = sys.modules.get("PIL.Image"), sys.modules.get("matplotlib.figure")
        if isinstance(value, _EncodedImage):
            value = decoded(value.read())
        if pillow is not None and isinstance(value, pillow.Image):
            self.image(value)
        elif figures is not None and isinstance(value, figures.Figure):
            self.figure(value)
        else:
            return False
        return True

    def display(self, *values: object, **options: object) -> None:
        """Show images and figures, and print everything else, as in notebooks."""
        for value in values:
            if not self.add(value):
                print(value if isinstance(value, str) else repr(value))

    def show_open_figures(self) -> None:
        """Show and close all open figures, in the order of their numbers."""
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        if helpers is None or not helpers.Gcf.figs:
            return
        for manager in sorted(helpers.Gcf.figs.values(), key=lambda manager: manager.num):
            self.figure(manager.canvas.figure)

    def figure(self, figure: Any) -> None:
        """Show a figure, and close it."""
        helpers = sys.modules["matplotlib._pylab_helpers"]
        try:
            if self._has_place():
                self.image(_drawn(figure, self._pixels))
        finally:
            helpers.Gcf.destroy_fig(figure)

    def image(self, image: Any) -> None:
        """Show an image of pillow."""
        if not self._has_place():
            return
        width, height = image.size
        if max(width, height) > EXTREME * min(width, height) or not width:
            why = f"its sides differ by more than a factor of {EXTREME}" if width and height else "it is empty"
            self.notes.append(f"An image of {width} x {height} pixels is not shown, because {why}.")
            return
        shown = _reduced(_rgb(image), self._pixels)
        written = io.BytesIO()
        shown.save(written, format="PNG", compress_level=1)
        self._bind(len(self.encoded), shown)
        self.encoded.append(written.getvalue())

    def _has_place(self) -> bool:
        if len(self.encoded) < self._most:
            return True
        self.omitted += 1
        return False


def decoded(data: bytes) -> Any:
    """An image of pillow, upright, as RGB. A plain RGB image is decoded only when it is used.

    Raises:
        OSError: it is no image. Damaged files raise every type.
    """
    from PIL import Image, ImageOps

    image = Image.open(io.BytesIO(data))
    turned = image.getexif().get(0x0112, 1) != 1 if image.format != "PNG" or "exif" in image.info else False
    if image.mode == "RGB" and not turned and "transparency" not in image.info:
        return image
    return _rgb(ImageOps.exif_transpose(image))


def preload(modules: Iterable[str]) -> dict[str, ModuleType]:
    """Import those modules that are installed."""
    found = {}
    for name in modules:
        try:
            __import__(name)
        except ImportError:
            continue
        found[name] = sys.modules[name]
    return found


def _drawn(figure: Any, pixels: int) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    dpi = figure.dpi
    width, height = figure.get_size_inches() * dpi
    if width * height > pixels:
        figure.dpi = dpi * (pixels / (width * height)) ** 0.5
    try:
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        return Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba(), "raw", "RGBA", 0, 1)
    finally:
        figure.dpi = dpi


def _rgb(image: Any) -> Any:
    """A copy as 8-bit RGB; transparent parts become white."""
    from PIL import Image

    if image.mode in ("I", "F", "I;16"):
        low, high = image.getextrema()
        scale, offset = 1.0, 0.0
        if high > low and (high > 255 or low < 0):
            scale = 255.0 / (high - low)
            offset = -low * scale
        return image.convert("F").point(lambda value: value * scale + offset).convert("L").convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        clear = image.convert("RGBA")
        page = Image.new("RGBA", clear.size, "white")
        page.alpha_composite(clear)
        return page.convert("RGB")
    return image.convert("RGB") if image.mode != "RGB" else image.copy()


def _reduced(image: Any, pixels: int) -> Any:
    width, height = image.size
    if width * height <= pixels:
        return image
    scale = (pixels / (width * height)) ** 0.5
    return image.resize((max(1, int(width * scale)), max(1, int(height * scale))))


class _EncodedImage:
    """``IPython.display.Image``: the bytes of an image file, or its path."""

    def __init__(self, data: object = None, url: object = None, filename: str | None = None, **options: object) -> None:
        if isinstance(data, str):
            data, filename = None, data
        if not isinstance(data, (bytes, bytearray)) and filename is None:
            raise ValueError("Image needs the bytes of an image file or its path. There is no network.")
        self._data, self._filename = data, filename

    def read(self) -> bytes:
        """The bytes of the file.

        Raises:
            OSError: it cannot be read.
        """
        if isinstance(self._data, (bytes, bytearray)):
            return bytes(self._data)
        assert self._filename is not None
        with open(self._filename, "rb") as file:
            return file.read()


class _Markup:
    """``HTML``, ``Markdown`` and others of ``IPython.display``: a text, which is shown as it is."""

    def __init__(self, data: object = "", *arguments: object, **options: object) -> None:
        self.data = data

    def __repr__(self) -> str:
        return str(self.data)


def _notebook_modules(display: Callable[..., None]) -> dict[str, ModuleType]:
    """Stand-ins for ``IPython`` and ``IPython.display``, which code that was written for notebooks imports.

    They replace an installed IPython, whose functions show nothing outside of a notebook.
    """
    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    members = {"display": display, "clear_output": _nothing, "Image": _EncodedImage}
    module.__dict__.update(members | dict.fromkeys(("HTML", "Markdown", "Latex", "Pretty"), _Markup))
    package.__dict__.update(display=module, get_ipython=_nothing, version_info=(8, 24, 0))
    return {"IPython": package, "IPython.display": module}


def _nothing(*arguments: object, **options: object) -> None:
    """There is no notebook."""
