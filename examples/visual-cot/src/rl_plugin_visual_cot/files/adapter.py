"""The config adapter: detects the type of a file, and translates it with the table for that type."""

from __future__ import annotations

from rlcore.config.adapters import ConfigFile, Given, Translation

from rl_plugin_visual_cot.files.words import EVALUATION, GRPO, SFT


class ReinforcedCot:
    """A `rlcore.config.adapters.FileAdapter`."""

    def read_file(self, file: ConfigFile, given: Given) -> Translation:
        """A training file has the table ``SFT`` or ``GRPO``; an evaluation file has neither."""
        kind = next((table for table in (SFT, GRPO) if table.block in file.layer.tree), EVALUATION)
        return kind.read_file(file, given)


ADAPTER = ReinforcedCot()
