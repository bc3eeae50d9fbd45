"""A virtual environment with access to the packages of the current one, in which plugins are installed."""

from __future__ import annotations

import os
import site
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The environment, in a folder in which commands run."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Installation:
        venv.create(folder / "environment", with_pip=True)
        made = cls(folder=folder)
        lines = [f"import site; site.addsitedir({each!r})" for each in site.getsitepackages()]
        (made.site / "current_environment.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return made

    @property
    def site(self) -> Path:
        (found,) = (self.folder / "environment" / "lib").glob("python*/site-packages")
        return found

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        hidden = {"PYTHONPATH", "VIRTUAL_ENV", "RLCORE_DISABLE_PLUGINS"}
        return subprocess.run(
            [str(self.folder / "environment" / "bin" / "python"), *arguments],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if name not in hidden},
            capture_output=True,
            text=True,
            check=False,
        )

    def rlcore(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "rlcore", *arguments)

    def pip_install(self, *folders: Path, options: tuple[str, ...] = ()) -> None:
        # All requirements are already installed, so nothing is downloaded.
        offline = ("--no-index", "--no-build-isolation", *options)
        done = self.python("-m", "pip", "install", *offline, *map(str, folders))
        assert done.returncode == 0, done.stdout + done.stderr
