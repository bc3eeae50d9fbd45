"""Inputs that once ended in a traceback, took minutes or took all memory. Each is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz_case import Case
from fuzz_folder_cases import EVALUATE
from fuzz_text_cases import CHATS, SMALL, toml_of

DRY = ("run", "--dry-run", "-c", "small.toml")
DIGITS = "9" * 5000
LARGE = str(10**24)
OVERRIDES = (
    *("model.device=meta", "rollout.max_context_tokens=1", "model.builder.layers=100000000", "name=a\udcff"),
    *(f"{key}={DIGITS}" for key in ("seed", "trainer.steps", "rollout.group_size")),
    *(f"{key}={LARGE}" for key in ("trainer.tasks_per_step", "rollout.max_new_tokens", "evaluation.samples", "seed")),
    *(f"{key}={'x' * 300}" for key in ("name", "model.path", "data.train")),
    *('model.path="a\\u0000b"', "data.train=a/" + "b/" * 3000, "a." * 3000 + "b=1", f"stop={'[' * 5000}"),
)
CHAT = json.dumps(CHATS[0])
SIZES: dict[str, Any] = {
    "num_hidden_layers": (100_000_000, 0, -1, "2", int(LARGE)),
    "num_attention_heads": (0, 3, -2, "4", 10**9),
    "hidden_size": (0, 33, "32", 10**12),
    "vocab_size": (0, "600", 10**12),
    "intermediate_size": (0, -1, 10**12),
}


def settings_files() -> dict[str, bytes]:
    """Files with settings. They are large, so they are not made on import."""
    return {
        "digits.toml": b"seed = " + DIGITS.encode(),
        "digits.yaml": b"seed: " + DIGITS.encode(),
        "deep.toml": b"a = " + b"[" * 500_000,
        "deep.yaml": b"a: " + b"[" * 100_000,
        "nested.toml": b"a = " + b"[" * 300 + b"]" * 300,
        "tables.toml": b"[" + b".".join([b"a"] * 50_000) + b"]",
        "keys.toml": "".join(f"key{n} = 1\n" for n in range(60_000)).encode(),
        "keys.yaml": "".join(f"key{n}: 1\n" for n in range(60_000)).encode(),
        "tables-of-one.toml": "".join(f"[t{n}.a]\nb = 1\n" for n in range(20_000)).encode(),
        "line.toml": b'summary = "' + b"x" * 20_000_000 + b'"\n',
        "surrogate.yaml": b'summary: "\\ud800"',
        "nul.toml": b'summary = "\\u0000"',
        "zero.toml": b"\0" * 1000,
    }


def row_files() -> dict[str, bytes]:
    """Files with rows."""
    return {
        "digits.jsonl": CHAT.replace('"c1"', DIGITS).encode(),
        "deep.jsonl": b"[" * 200_000,
        "nested.jsonl": CHAT.replace('"properties": {}', f'"properties": {"[" * 500}{"]" * 500}').encode(),
        "deep.json": b"[" * 200_000,
        "long.jsonl": b'{"messages": "' + b"x" * 257_000_000 + b'"}',
        "cut.jsonl.gz": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff",
        "empty.parquet": b"PAR1PAR1",
    }


def known(model: Path) -> Iterator[Case]:
    """One case for each input."""
    small = {"small.toml": toml_of(SMALL).encode()}
    cases: list[tuple[tuple[str, ...], dict[str, bytes], dict[str, Path]]] = []
    cases += [((*DRY, override), small, {}) for override in OVERRIDES]
    cases += [((*DRY, *["seed=1"] * 60_000), small, {}), (("run", "-c", "small.toml", f"runs={'x' * 300}"), small, {})]
    cases += [(("config", "show", "-c", name), {name: data}, {}) for name, data in settings_files().items()]
    cases += [(("data", "show", name), {name: data}, {}) for name, data in row_files().items()]
    settings = json.loads((model / "config.json").read_text(encoding="utf-8"))
    for name, values in SIZES.items():
        for value in values:
            files = {"model/config.json": json.dumps({**settings, name: value}).encode()}
            cases += [
                (EVALUATE, files, {"model": model}),
                ((*DRY, "model.path=model"), {**small, **files}, {"model": model}),
            ]
    cases += [((*EVALUATE, "model.device=cuda:999"), {}, {"model": model})]
    for name in ("x" * 300, "x/" * 3000, "\udcff", "/dev/null"):
        cases += [(words, {}, {}) for words in (("data", "show", name), ("run", "--resume", name), ("run", "-c", name))]
        cases += [
            (words, {}, {}) for words in (("merge", name, "--out", "o"), ("eval", name), ("config", "diff", name, "."))
        ]
    for number, (words, files, folders) in enumerate(cases):
        shows_nothing = words == ("data", "show", "/dev/null")
        expect = "any" if shows_nothing else "refused"
        yield Case(name=f"known-{number:04}", arguments=words, files=files, folders=folders, expect=expect)  # type: ignore[arg-type]
