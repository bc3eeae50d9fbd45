"""Cases of model folders and of run directories with their checkpoints."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz_case import Case
from fuzz_values import DIGITS, altered, damage, json_text, nested, replaced

EVALUATE = (
    *(
        "eval",
        "--json",
        "-p",
        "gsm8k-tools",
        "environment.max_turns=1",
        "evaluation.tasks=1",
        "rollout.max_new_tokens=2",
    ),
    *("rollout.torch.slots=8", "model.path=model"),
)
MERGE = ("merge", "model", "--out", "merged")
RESUME = ("run", "--resume")
RUN_FILES = ("config.toml", "asked.toml", "environment.json", "metrics.jsonl")
"""Text files of a run directory. The others are those of its checkpoints and rollouts."""


def _wrong_sizes(config: dict[str, Any], rng: random.Random) -> Any:
    key, value = rng.choice(
        (
            ("num_hidden_layers", rng.choice((0, -1, 10**8, 10**24, "2", 1.5, DIGITS, []))),
            ("num_attention_heads", rng.choice((0, -2, 3, 10**9, "2", DIGITS))),
            ("num_key_value_heads", rng.choice((0, -1, 3, "1", 10**24))),
            ("hidden_size", rng.choice((0, -32, 33, "32", 2**40, DIGITS))),
            ("vocab_size", rng.choice((0, -1, "x", 2**40, 5))),
            ("intermediate_size", rng.choice((0, -1, "x", 2**40))),
            ("max_position_embeddings", rng.choice((0, -1, "x", 10**24))),
            ("model_type", rng.choice(("nope", 5, [], "../x"))),
        )
    )
    return {**config, key: value}


def _header(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _safetensors(header: Any, rest: bytes) -> bytes:
    text = json_text(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


def model_folders(count: int, model: Path) -> Iterator[Case]:
    """The settings, the tokenizer, the header of the weights and an index, with damaged bytes and values."""
    texts = {path.name: path.read_bytes() for path in model.glob("*.json")}
    weights = (model / "model.safetensors").read_bytes()
    header, rest = _header(weights)
    for number in range(count):
        rng = random.Random(f"model {number}")
        kind = rng.randrange(10)
        expect: Any = "any"
        files: dict[str, bytes | None] = {}
        if kind == 0:
            name = rng.choice(sorted(texts))
            files = {name: damage(texts[name], rng)}
        elif kind <= 2:
            name = rng.choice(sorted(texts))
            files = {name: json_text(altered(json.loads(texts[name]), rng)).encode()}
        elif kind <= 4:
            expect = "refused"
            files = {"config.json": json_text(_wrong_sizes(json.loads(texts["config.json"]), rng)).encode()}
        elif kind == 5:
            cut = rng.randrange(1, len(weights))
            files, expect = {"model.safetensors": weights[:cut]}, "refused"
        elif kind == 6:
            files = {"model.safetensors": _safetensors(altered(header, rng), rest)}
        elif kind == 7:
            name = rng.choice(sorted(header.keys() - {"__metadata__"}))
            wrong = rng.choice(
                ({"shape": [-1, 2]}, {"shape": [2**62, 4]}, {"data_offsets": [0, 2**62]}, {"dtype": "X"})
            )
            files = {"model.safetensors": _safetensors({**header, name: {**header[name], **wrong}}, rest)}
            expect = "refused"
        elif kind == 8:
            index = {"metadata": {}, "weight_map": dict.fromkeys(header.keys() - {"__metadata__"}, "a.safetensors")}
            right = rng.random() < 0.3
            index = index if right else altered(index, rng)
            files = {"model.safetensors": None, "a.safetensors": weights}
            files["model.safetensors.index.json"] = json_text(index).encode()
        else:
            expect = "same"
            config = json.loads(texts["config.json"])
            items = list({**config, "a_key_of_later": rng.random()}.items())
            rng.shuffle(items)
            files = {"config.json": b" \n" + json.dumps(dict(items), indent=rng.choice((None, 1, 4))).encode() + b"\n"}
        arguments = EVALUATE if expect == "same" or rng.random() < 0.6 else MERGE
        if arguments is MERGE and expect == "refused" and "config.json" in files:
            arguments = EVALUATE  # merging copies the settings and builds no model
        yield Case(
            name=f"model-{number:04}",
            arguments=arguments,
            folders={"model": model},
            files={f"model/{name}": data for name, data in files.items()},
            expect=expect,
            like=arguments,
            writes=frozenset({"merged"} if arguments is MERGE else set()),
        )


def checkpoints(count: int, run: Path) -> Iterator[Case]:
    """A run directory with one damaged file, for each command that reads one."""
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and not path.is_symlink())
    last = sorted(path.name for path in (run / "checkpoints").iterdir() if path.name.isdecimal())[-1]
    own = [name for name in names if name.startswith(f"checkpoints/{last}/")]
    commands: tuple[tuple[str, ...], ...] = (
        ("run", "--resume", "run", "--dry-run"),
        ("run", "--resume", "run", "trainer.steps=3"),
        ("eval", "--json", "run", "evaluation.tasks=1", "rollout.max_new_tokens=2"),
        ("data", "show", "run"),
        ("data", "rescore", "run", "--json"),
        ("merge", "run", "--out", "merged"),
        ("config", "diff", "run", "run"),
        ("doctor", "--json"),
    )
    for number in range(count):
        rng = random.Random(f"checkpoint {number}")
        command = rng.choice(commands[:7])
        name = rng.choice(rng.choice((RUN_FILES, own, own, names)))
        data = (run / name).read_bytes()
        kind, expect = rng.randrange(6), "any"
        files: dict[str, bytes | None]
        if kind == 0:
            files = {name: None}
        elif kind == 1:
            files = {name: data[: rng.randrange(len(data) + 1)]}
        elif kind == 2 and name.endswith(".json"):
            files = {name: json_text(rng.choice((altered(json.loads(data), rng), [], None, nested(200)))).encode()}
        elif kind == 3 and name.endswith(".jsonl"):
            rows = [json.loads(line) for line in data.splitlines()]
            at = rng.randrange(len(rows))
            files = {
                name: "".join(json_text(row) + "\n" for row in replaced(rows, (at,), altered(rows[at], rng))).encode()
            }
        elif kind == 4:
            state = f"checkpoints/{last}/trainer.json"
            files, expect = {state: rng.choice((b"", b"{", b"[]", b"null", b"[" * 3000, b'{"files": 5}'))}, "refused"
            command = commands[rng.randrange(2)]
        else:
            files = {name: damage(data, rng)}
        if command[:2] == RESUME and name in own and files.get(name, data) != data:
            expect = "refused"  # by the checksums
        yield Case(
            name=f"checkpoint-{number:04}",
            arguments=command,
            folders={"run": run},
            files={f"run/{name}": data for name, data in files.items()},
            expect=expect,  # type: ignore[arg-type]
            writes=frozenset({"merged"} if command[0] == "merge" else set()),
        )
