"""What this package registers: ids and import paths. Every ``rlcore`` command imports this module, so keep it light."""

from __future__ import annotations

from rlcore import TrackerSpec

HERE = "rl_plugin_csv_file"

rlcore_specs = [
    TrackerSpec(
        id="csv-file",
        target=f"{HERE}.tracker:CsvTracker",
        config=f"{HERE}.tracker:CsvConfig",
        summary="metrics.csv in the run directory.",
    )
]
