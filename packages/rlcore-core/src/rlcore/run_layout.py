"""The layout ``stamped`` of a run directory: the plain one under other names, and a copy of what explains the run.

::

    runs/20261120_143005_SFT/
      backup/            copies of config.toml, asked.toml and environment.json; command.txt, a line for each start
      ckpt  ->           checkpoints/
      result  ->         rollouts/
      tensorboard/       filled by the tracker of this name
      output.log         what was said
      …                  and everything else that a plain run directory has, so that every command finds it
"""

from __future__ import annotations

import datetime
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from rlcore.config.secrets import mask_arguments
from rlcore.whole_files import told, write_whole

EXPLAINS = ("config.toml", "asked.toml", "environment.json")
"""What is copied into ``backup/``."""
NAMES = {"ckpt": "checkpoints", "result": "rollouts"}
"""Further names of folders of the plain layout."""
COMMANDS = "command.txt"


def stamped_name(tag: str, now: datetime.datetime) -> str:
    """``20261120_143005_SFT``; the time is local."""
    return f"{now:%Y%m%d_%H%M%S}_{tag}"


def lay_out(folder: Path, argv: Sequence[str]) -> None:
    """Give a new plain run directory the further names and the backup."""
    for name, target in NAMES.items():
        (folder / name).symlink_to(target)
    (folder / "tensorboard").mkdir()
    (folder / "backup").mkdir()
    back_up(folder, argv)


def back_up(folder: Path, argv: Sequence[str]) -> None:
    """Renew the copies and add the command, where the run directory has a backup.

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
    write_whole(backup / COMMANDS, f"{earlier}{shlex.join(mask_arguments(list(argv)))}\n")


__all__ = ["back_up", "lay_out", "stamped_name"]
