"""Videos of episodes."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rlcore.atomic_files import beside
from rlcore.errors import NotInstalledError, WriteError
from rlcore.plugins.loading import pip_line
from rlcore.transport.inside.stops import stops_held

MULTIPLE = 2
"""H.264 needs even sides."""


def check_writer() -> None:
    """Check that videos can be written.

    Raises:
        NotInstalledError: they cannot.
    """
    try:
        importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise NotInstalledError(
            "videos need imageio-ffmpeg",
            found=f"{type(error).__name__}: {error}",
            where="--videos",
            fix=pip_line(["rlcore-control[videos]"]),
        ) from error


def write_video(path: Path, frames: Sequence[NDArray[np.uint8]], *, rate: int) -> None:
    """Write an MP4 file (H.264), completely or not at all.

    Args:
        path: the file
        frames: pictures [height, width, 3] of one size. An odd last row or column is left out.
        rate: pictures per second

    Raises:
        WriteError: it cannot be written, for example on a full disk.
    """
    import imageio_ffmpeg

    height, width = (side - side % MULTIPLE for side in frames[0].shape[:2])
    partial = beside(path)
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(rate), "-i", "-"]
    target = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-f", "mp4", "-threads", "1", str(partial)]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *source, *target]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = b"".join(frame[:height, :width].tobytes() for frame in frames)
        with stops_held():  # a signal to stop the run must not end the video
            encoding = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        with encoding:
            _, errors = encoding.communicate(pixels)
        if encoding.returncode != 0:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise OSError(lines[-1] if lines else f"ffmpeg ended with exit status {encoding.returncode}")
        partial.replace(path)
    except OSError as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        room = next(folder for folder in path.absolute().parents if folder.is_dir())
        with contextlib.suppress(OSError):  # the error below says more
            partial.unlink()
        raise WriteError(
            "a video cannot be written",
            found=f"{first}; {shutil.disk_usage(room).free / 1e6:,.1f} MB are free",
            where=str(path),
            fix="free space on the disk, or write to another folder",
        ) from error
