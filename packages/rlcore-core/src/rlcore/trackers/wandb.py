"""Log to Weights & Biases. The constructor imports wandb."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import NotInstalledError
from rlcore.plugins.loading import pip_line
from rlcore.trackers.options import WandbOptions
from rlcore.trackers.samples import SampleTable
from rlcore.trackers.service import ServiceTracker

if TYPE_CHECKING:
    from rlcore.diagnosis.diagnosing import Diagnosis

LONGEST_TITLE = 63
"""W&B refuses longer titles of alerts."""


class WandbTracker(ServiceTracker):
    """One wandb run with the configuration, the metrics, tables of samples, and alerts.

    Its files are in ``wandb/`` of the run directory. A resumed run writes its files for ``wandb sync`` again. Online,
    W&B ignores a step that it already has.
    """

    def __init__(self, options: WandbOptions, directory: Path | None) -> None:
        try:
            import wandb
        except ImportError as error:
            raise NotInstalledError(
                "the tracker 'wandb' needs wandb", found=str(error), fix=pip_line(["rlcore-core[wandb]"])
            ) from None
        super().__init__("wandb", directory, options.samples)
        self._table, self._image = wandb.Table, wandb.Image
        self._run = wandb.init(
            project=options.project,
            entity=options.entity,
            mode=options.mode,
            name=self.directory.name,
            id=self.id,
            resume="allow",
            config=self.config,
            dir=self.directory,
            # The metadata have the arguments of the command, which can contain secrets. The output is in output.log.
            settings=wandb.Settings(x_disable_meta=True, console="off", disable_code=True),
        )
        if self._run.offline and self.can_replay:
            for folder in self.directory.glob(f"wandb/offline-run-*-{self.id}"):
                if folder != Path(self._run.dir).parent:
                    shutil.rmtree(folder)
            self.replay()

    def send(self, step: int, metrics: Mapping[str, float], tables: Mapping[str, SampleTable]) -> None:
        """Log the metrics and the tables."""
        made = {name: self._table(columns=table.columns, data=table.rows) for name, table in tables.items()}
        self._run.log({**metrics, **made}, step=step)

    def image(self, data: bytes) -> Any:
        """The images of a trajectory, next to each other."""
        from PIL import Image

        return self._image(Image.open(io.BytesIO(data)))

    def alert(self, found: Diagnosis, repeated: bool) -> None:
        """Send an alert, unless W&B has it already: files that are written again need it again."""
        if not repeated or self._run.offline:
            level = "ERROR" if found.status == "fail" else "WARN"
            self._run.alert(found.rule[:LONGEST_TITLE], f"step {found.step}: {found.text}\n{found.change}", level)

    def close(self) -> None:
        """Flush and finish the run."""
        self._run.finish()
