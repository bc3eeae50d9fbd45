"""The layout ``stamped`` of a run directory: the plain layout with additional names and a backup of the configuration.

::

    runs/20261120_143005_SFT/
      backup/            copies of config.toml, asked.toml and environment.json; command.txt, one line per start
      ckpt  ->           checkpoints/
      result  ->         rollouts/
      tensorboard/       filled by the tracker of this name
      output.log         the printed output
      …                  all other files of a plain run directory, so that every command works
"""

from __future__ import annotations

import datetime
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from rlcore.atomic_files import told, write_whole
from rlcore.console.escaping import printable
from rlcore.redaction import mask_arguments

EXPLAINS = ("config.toml", "asked.toml", "environment.json")
"""The files that are copied to ``backup/``."""
NAMES = {"ckpt": "checkpoints", "result": "rollouts"}
"""Additional names of folders of the plain layout."""
COMMANDS = "command.txt"


def stamped_name(tag: str, now: datetime.datetime) -> str:
    """A name such as ``20261120_143005_SFT``, in local time."""
    return f"{now:%Y%m%d_%H%M%S}_{tag}"


def lay_out(folder: Path, argv: Sequence[str]) -> None:
    """Add the additional names and the backup to a new plain run directory."""
    for name, target in NAMES.items():
        (folder / name).symlink_to(target)
    (folder / "tensorboard").mkdir()
    (folder / "backup").mkdir()
    back_up(folder, argv)


def back_up(folder: Path, argv: Sequence[str]) -> None:
    """Update the copies and add the command, if the run directory has a backup.

    Raises:
        UserError: a file cannot be written.
    """
    backup = folder / "backup"
    if not backup.is_dir():
        return
    for name in EXPLAINS:
        if (folder / name).is_file():
            with told(backup / name):
                shutil.copyfile(folder / name, backup / name)
    earlier = (backup / COMMANDS).read_text(encoding="utf-8") if (backup / COMMANDS).is_file() else ""
    write_whole(backup / COMMANDS, f"{earlier}{printable(shlex.join(mask_arguments(argv)))}\n")
