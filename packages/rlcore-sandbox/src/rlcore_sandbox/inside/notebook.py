"""Stand-ins for the modules ``IPython`` and ``IPython.display``, which code that was written for notebooks imports.

They replace an installed IPython, whose functions show nothing outside of a notebook.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType


class EncodedImage:
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


class Markup:
    """``HTML``, ``Markdown`` and others of ``IPython.display``: a text, which is shown as it is."""

    def __init__(self, data: object = "", *arguments: object, **options: object) -> None:
        self.data = data

    def __repr__(self) -> str:
        return str(self.data)


def notebook_modules(display: Callable[..., None]) -> dict[str, ModuleType]:
    """The modules by their names, with this function as ``display``."""
    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    members = {"display": display, "clear_output": _nothing, "Image": EncodedImage}
    module.__dict__.update(members | dict.fromkeys(("HTML", "Markdown", "Latex", "Pretty"), Markup))
    package.__dict__.update(display=module, get_ipython=_nothing, version_info=(8, 24, 0))
    return {"IPython": package, "IPython.display": module}


def _nothing(*arguments: object, **options: object) -> None:
    """There is no notebook."""
