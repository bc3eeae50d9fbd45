"""Comparison of logits with transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from rlcore_merge.cli import merge as command

transformers = pytest.importorskip("transformers")


def test_check_of_logits_hides_output_of_transformers(tmp_path: Path) -> None:
    sizes = {"vocab_size": 64, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = transformers.Qwen2Config(**sizes, num_attention_heads=1, num_key_value_heads=1)
    transformers.Qwen2ForCausalLM(config).save_pretrained(tmp_path / "model")
    before = transformers.utils.logging.get_verbosity(), transformers.utils.logging.is_progress_bar_enabled()
    arguments = [str(tmp_path / "model"), "--check", str(tmp_path / "model")]
    run = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert run.return_value == 0, run.output
    assert run.output.splitlines() == ["logits on a prompt: largest difference 0", "15 tensors compared: equal"]
    assert (transformers.utils.logging.get_verbosity(), transformers.utils.logging.is_progress_bar_enabled()) == before
