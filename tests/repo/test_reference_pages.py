"""The reference pages list the keys and metrics of the code."""

from __future__ import annotations

import pytest
from reference_pages import FOLDER, PAGES, components
from rlcore.config.fields import keys_of
from rlcore.config.schema import RunConfig
from rlcore.plugins.registry import Registry
from rlcore_compat.accelerate import ACCELERATE
from rlcore_compat.file_vocabulary import FileVocabulary
from rlcore_compat.trl import GRPO_FILE
from rlcore_compat.verl import VERL
from rlcore_compat.vocabulary import Vocabulary

OPEN = ("model.chat_template_kwargs.", "rollout.vllm.arguments.")
"""Tables that take any key."""


@pytest.mark.parametrize("name", PAGES)
def test_reference_page_is_current(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run: uv run python tests/repo/reference_pages.py"


def test_reference_names_keys_and_metrics() -> None:
    keys, metrics = ((FOLDER / name).read_text(encoding="utf-8") for name in ("configuration.md", "metrics.md"))
    for key in ("checkpoint.best.metric: ", "trainer.early_stop.patience: ", "rollout.torch.slots: ", "lora.rank: "):
        assert f"\n{key}" in keys
    assert "| `evaluation/accuracy` |" in metrics


@pytest.mark.parametrize("system", [VERL, GRPO_FILE, ACCELERATE], ids=lambda system: system.name)
def test_keys_of_other_systems_set_keys_that_exist(system: Vocabulary | FileVocabulary) -> None:
    environment = Registry().config_model("environment", "gsm8k-tools")
    models = [
        ("", RunConfig),
        ("environment.", environment),
        *((f"{table}.", model) for _, table, model in components()),
    ]
    known = {f"{table}{key}" for table, model in models for key in keys_of(model)}
    for key, meaning in system.meanings.items():
        for ours in (*([meaning.ours] if meaning.ours else ()), *meaning.also):
            assert ours in known or ours.startswith(OPEN), key
        assert meaning.ours or meaning.why or meaning.never, key
