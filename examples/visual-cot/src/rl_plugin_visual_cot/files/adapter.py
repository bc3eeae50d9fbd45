"""The config adapter: detects the type of a file, and translates it with the keys for that type in ``words.toml``.

Its programs merge ``pipeline.train`` with the level above it, so keys are accepted at both levels. Two keys that the
programs read and then ignore (the learning rate and the weight decay of GRPO) take effect here.
"""

from __future__ import annotations

from functools import partial

from rlcore.config.adapters import ConfigFile, Given, Translation
from rlcore_compat.file_vocabulary import FileVocabulary
from rlcore_compat.tables import Table
from rlcore_compat.trl import TRL
from rlcore_compat.trl_batches import processes_beside

_keys = partial(Table, "rl_plugin_visual_cot:files/words.toml", "model", "test", "lora")
_vocabulary = partial(
    FileVocabulary,
    also_within="pipeline.train",
    paths=frozenset(
        {
            "log_dir",
            "output_dir",
            "logging_dir",
            "image_dir",
            "test_image_dir",
            "train_file",
            "pipeline.val.val_file",
            "pipeline.test.test_file",
            "pipeline.val.image_dir",
            "pipeline.test.image_dir",
        }
    ),
    models=frozenset({"model_path", "tokenizer_path", "lora_adapter_path"}),
    beside=processes_beside,
)
SFT = _vocabulary(name="the SFT file", block="SFT", meanings=_keys("SFT"))
GRPO = _vocabulary(name="the GRPO file", block="GRPO", meanings={**TRL, **_keys("GRPO")})
EVALUATION = _vocabulary(
    name="the evaluation file",
    meanings=Table("rl_plugin_visual_cot:files/words.toml", "model", "test", "evaluation"),
)


class ReinforcedCot:
    """A `rlcore.config.adapters.FileAdapter`."""

    def read_file(self, file: ConfigFile, given: Given) -> Translation:
        """A training file has the table ``SFT`` or ``GRPO``; an evaluation file has neither."""
        kind = next((table for table in (SFT, GRPO) if table.block in file.layer.tree), EVALUATION)
        return kind.read_file(file, given)


ADAPTER = ReinforcedCot()
