"""The model card says what a run trained and measured, and nothing about the machine."""

from __future__ import annotations

import json
from pathlib import Path

from rlcore_merge.model_card import write_card

CONFIG = """
seed = 3
[model]
path = {model}
[environment]
id = "doors`|\\n# forged"
[[reward]]
id = "opened"
[[reward]]
id = "brief"
[trainer]
id = "policy-gradient"
[rollout.openai]
base_url = "http://internal:8000"
"""


def test_card_has_settings_and_measurements_of_the_checkpoint(tmp_path: Path) -> None:
    base, run, merged = tmp_path / "base", tmp_path / "run", tmp_path / "merged"
    for folder in (base, run / "checkpoints" / "000002" / "model", merged):
        folder.mkdir(parents=True)
    (run / "config.toml").write_text(CONFIG.format(model=json.dumps(str(base))), encoding="utf-8")
    rows = [{"step": step, "evaluation/accuracy": step / 4, "loss": 1.0} for step in (0, 2)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    write_card(merged, run / "checkpoints" / "000002" / "model", "me/doors")
    card = (merged / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "\n# doors\n" in card
    assert "| Base model | `base` |" in card
    assert "| Rewards | `opened, brief` |" in card
    assert "| Step | 2 |" in card
    assert "| `accuracy` | 0.5 |" in card
    assert str(tmp_path) not in card
    assert "internal" not in card
    assert "\n# forged" not in card


def test_card_of_the_user_is_kept(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    write_card(tmp_path, tmp_path, "me/model")
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"
