"""Cases of words on the command line, of recipes, and of data files."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Iterator
from typing import Any

from fuzz_case import Case
from fuzz_values import DIGITS, TEXTS, VALUES, altered, damage, json_text, nested, places, replaced

SMALL = {
    "model": {"path": "builtin:tiny-qwen2", "builder": {"layers": 1, "width": 32, "heads": 2, "feed_forward": 32}},
    "environment": {"id": "gsm8k-tools", "tools": ["calculator"], "max_turns": 2},
    "reward": [{"id": "math-numeric-equal", "weight": 1.0}, {"id": "string-equal", "weight": 0.0}],
    "data": {"train": "generated", "evaluation": "generated", "limit": 8},
    "rollout": {"engine": "torch", "group_size": 2, "max_new_tokens": 4, "torch": {"slots": 8}},
    "algorithm": {"advantage": "grpo", "loss": {"id": "clip", "clip_low": 0.2}, "kl": {"coefficient": 0.0}},
    "trainer": {"id": "policy-gradient", "steps": 2, "tasks_per_step": 2, "learning_rate": 1e-4, "betas": [0.9, 0.99]},
    "evaluation": {"every": 0, "tasks": 2},
    "checkpoint": {"every": 1, "keep": 2},
    "trackers": {"use": ["jsonl"]},
}
"""A run of a second, with every kind of table."""
SHOW = ("config", "show", "-c")
COMMANDS: tuple[tuple[str, ...], ...] = (
    *(
        ("run", "--dry-run", "-p", "gsm8k-tools"),
        ("run", "--dry-run", "-p", "gsm8k-tools", "seed=3", "trainer.steps=4"),
    ),
    *(
        ("config", "show", "-p", "gsm8k-tools", "--origin"),
        ("config", "schema", "-p", "gsm8k-tools"),
        ("config", "diff"),
    ),
    *(
        ("plugins", "list"),
        ("plugins", "list", "--check", "--json"),
        ("plugins", "show", "gsm8k-tools"),
        ("data", "list"),
    ),
    *(
        ("data", "show", "gsm8k-tools", "-n", "2"),
        ("data", "prepare", "gsm8k-tools", "--help-options"),
        ("data", "rescore"),
    ),
    *(("run", "--dry-run", "--resume"), ("eval", "--json"), ("merge",), ("merge", "--out", "merged"), ("--help",)),
    *(("run", "--dry-run", "-p", "gsm8k-tools", "algorithm.adv_estimator=rloo", "data.train_batch_size=8"),),
)
KEYS = (
    *("seed", "name", "runs", "model", "model.path", "model.device", "model.dtype", "model.chat_format", "data.train"),
    *("rollout.group_size", "rollout.max_new_tokens", "rollout.max_context_tokens", "rollout.temperature", "layout"),
    *("rollout.stop", "rollout.engine", "trainer.steps", "trainer.id", "trainer.betas", "trainer.learning_rate"),
    *("environment", "environment.tools", "reward.0.id", "reward.0.weight", "reward.1", "algorithm.loss", "strategy"),
    *("algorithm.kl.coefficient", "algorithm.advantage", "evaluation.samples", "checkpoint.keep", "trackers.use"),
    *("model.builder.layers", "data.limit", "strategy.processes", "lora.rank", "critic.model", "warmup.steps", "a.b.c"),
    *(
        "actor_rollout_ref.actor.optim.lr",
        "data.max_prompt_length",
        "algorithm.kl_ctrl.kl_coef",
        "trainer.total_epochs",
    ),
)
WRONG = (
    *(
        "no.such.key=1",
        "rollout.group_size=0",
        "rollout.group_size=-3",
        "trainer.steps=x",
        "model.device=meta",
        "=1",
        "seed",
    ),
    *(f"trainer.steps={10**24}", f"seed={2**64}", "rollout.max_context_tokens=1", "rollout.temperature=0", "--no-such"),
    *(
        "trainer.learning_rate=nan",
        "trainer.learning_rate=-1",
        "model.builder.layers=100000000",
        "name=a/b",
        "reward=[]",
    ),
    *(f"name={'x' * 300}", f"rollout.max_new_tokens={'9' * 5000}", "environment.id=nope", "rollout.engine=nope"),
    *(
        "model.path=/no/such/folder",
        "trainer.betas=[1,2,3]",
        "data.train=missing.jsonl",
        "layout=round",
        "name=a\udcff",
    ),
)
"""Words that make any run wrong."""


def _value(rng: random.Random) -> str:
    return rng.choice([text for text in TEXTS[:-1] if text != "\ud800"])  # of bytes, which cannot hold this one


def command_line(count: int) -> Iterator[Case]:
    """Words left out, repeated, swapped, replaced and added."""
    for number in range(count):
        rng = random.Random(f"command line {number}")
        words = list(rng.choice(COMMANDS))
        fixed = 2 if words[0] == "run" else 1
        expect = "any"
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(fixed, len(words) + 1)
            kind = rng.randrange(6)
            if kind == 0:
                words.insert(at, _value(rng))
            elif kind == 1 and len(words) > fixed:
                words[min(at, len(words) - 1)] = _value(rng) if at >= fixed and len(words) > fixed else words[-1]
            elif kind == 2 and at < len(words):
                words.insert(at, words[at])
            elif kind in (3, 4):
                words.append(f"{rng.choice(KEYS)}={_value(rng)}")
            elif "--help" not in words and words[0] == "run" and "-p" in words[:4]:
                words.append(rng.choice(WRONG))
                expect = "refused"
        if words[:2] == ["eval", "--json"]:
            words += ["evaluation.tasks=1", "rollout.max_new_tokens=2", "model.builder.layers=1"]
        writes = frozenset({"merged"} if words[0] == "merge" else set())
        refused = expect == "refused" and not {"-h", "--help", "--version"} & set(words)
        yield Case(
            name=f"words-{number:04}",
            arguments=tuple(words),
            expect="refused" if refused else "any",
            writes=writes,
        )


def toml_of(tree: dict[str, Any]) -> str:
    """A recipe as TOML, with tables in one line each below the top level."""

    def written(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(key)} = {written(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(written, value)) + "]"
        if value is None:
            return '"null"'
        if isinstance(value, float):
            return repr(value) if value == value and abs(value) != float("inf") else str(value)
        return json_text(value).replace("\x7f", "\\u007f")

    lines = []
    for table, value in tree.items():
        if isinstance(value, dict) and value:
            lines += [
                f"[{json.dumps(table)}]",
                *(f"{json.dumps(key)} = {written(item)}" for key, item in value.items()),
            ]
        else:
            lines.insert(0, f"{json.dumps(table)} = {written(value)}")
    return "\n".join(lines) + "\n"


def _wrong_trees(rng: random.Random) -> Any:
    """A recipe that is wrong by construction."""
    path, value = rng.choice(
        (
            (("trainer", "steps"), rng.choice((0, -1, 10**24, DIGITS, "many", None, [], 1.5, True))),
            (("rollout", "group_size"), rng.choice((0, 2**17, 10**24, DIGITS, {}, "x"))),
            (("model", "device"), rng.choice(("meta", "gpu", "cuda:x", "", "\ud800", 5))),
            (("model", "builder", "layers"), rng.choice((0, 10**8, "x", DIGITS))),
            (("environment", "id"), rng.choice(("nope", "", 5, "a:b", "x" * 400))),
            (("reward", 0, "id"), rng.choice((None, "nope", 5, []))),
            (("algorithm", "loss", "id"), rng.choice(("nope", 5))),
            (("data", "limit"), rng.choice((0, -1, "x", nested(200)))),
            (("checkpoint", "keep"), rng.choice((0, float("nan"), "x"))),
            (("evaluation", "unknown"), rng.choice(VALUES)),
        )
    )
    tree: Any = SMALL
    if path[-1] == "unknown":
        return {**tree, "evaluation": {**tree["evaluation"], "unknown": value}}
    return replaced(tree, path, value)


def recipes(count: int) -> Iterator[Case]:
    """Recipes in TOML and YAML, and files of verl-like keys, with damaged bytes, values and structure."""
    plain = toml_of(SMALL).encode()
    for number in range(count):
        rng = random.Random(f"recipe {number}")
        kind, suffix = rng.randrange(8), rng.choice(("toml", "toml", "yaml"))
        expect: Any = "any"
        like_files: dict[str, bytes | None] = {}
        if kind <= 2:
            data = damage(plain if suffix == "toml" else json_text(SMALL).encode(), rng)
        elif kind <= 4:
            tree = altered(SMALL, rng)
            data = (toml_of(tree) if suffix == "toml" else json_text(tree)).encode("utf-8", "surrogatepass")
        elif kind <= 6:
            tree, expect = _wrong_trees(rng), "refused"
            data = (toml_of(tree) if suffix == "toml" else json_text(tree)).encode("utf-8", "surrogatepass")
        else:
            expect, like_files, suffix = "same", {"recipe.toml": plain}, "toml"
            items = list(SMALL.items())
            rng.shuffle(items)
            data = b"# " + rng.choice(TEXTS[:15]).replace("\n", " ").encode() + b"\n\n"
            data += toml_of(dict(items)).replace("\n", rng.choice(("\n\n", "  # a comment\n", "\r\n"))).encode()
        name = f"recipe.{suffix}"
        arguments = (*SHOW, name, "--json") if rng.random() < 0.7 else ("run", "--dry-run", "-c", name)
        if expect == "same":
            arguments = (*SHOW, name, "--json")
        yield Case(
            name=f"recipe-{number:04}",
            arguments=arguments,
            files={name: data},
            expect=expect,
            like=(*SHOW, "recipe.toml", "--json"),
            like_files=like_files,
        )


QUESTIONS: list[Any] = [
    {"question": f"{n} apples and {n} pears?", "answer": f"It is {n}+{n}=<<{n}+{n}={2 * n}>>{2 * n}.\n#### {2 * n}"}
    for n in range(3, 7)
]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
CHATS: list[Any] = [
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"{n} + 2?"},
            {"role": "assistant", "content": "One moment.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
            {"role": "assistant", "content": [{"type": "text", "text": "It is 3."}]},
        ],
        "tools": [
            {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
        ],
    }
    for n in range(4)
]
SHARED: list[Any] = [
    {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}], "system": "S"}
]
SFT = ("run", "--dry-run", "trainer.id=sft", "data.id=chat", "model.path=builtin:tiny-qwen2", "evaluation.every=0")


def _lines(rows: list[Any]) -> bytes:
    return "".join(json_text(row) + "\n" for row in rows).encode()


def _parquet(rows: list[Any]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


def data_files(count: int) -> Iterator[Case]:
    """Files of rows: JSON lines, JSON lists, Parquet and compressed lines."""
    parquet = _parquet(QUESTIONS)
    for number in range(count):
        rng = random.Random(f"data {number}")
        rows = rng.choice((QUESTIONS, CHATS, CHATS, SHARED))
        questions = rows is QUESTIONS
        kind = rng.randrange(8)
        expect: Any = "any"
        name, data = "rows.jsonl", _lines(rows)
        if kind <= 2:
            at = rng.randrange(len(rows))
            data = _lines([altered(row, rng) if place == at else row for place, row in enumerate(rows)])
        elif kind == 3:
            data = damage(data, rng)
        elif kind == 4:
            name = rng.choice(("rows.json", "rows.jsonl.gz", "rows.parquet"))
            whole = {
                "rows.json": json_text(rows).encode(),
                "rows.jsonl.gz": gzip.compress(data),
                "rows.parquet": parquet,
            }
            data = damage(whole[name], rng)
        elif kind == 5:
            broken = rng.choice(
                (b"{", b"[1,", b'{"a": nul}', b"[" * 3000, b'"\xff"', b"\x00", b'{"a": 1} x', b"9" * 5000)
            )
            data, expect = data + broken + b"\n", "refused"
        elif kind == 6:
            wrong = rng.choice((None, [], 5, "", nested(200), {"role": "user"}))
            path = rng.choice(
                [path for path in places(rows[0]) if path[0] in ("messages", "conversations", "question")][:1]
            )
            data, expect = _lines([replaced(rows[0], path, wrong)]), "refused"
        else:
            expect = "same"
            data = rng.choice((b"\xef\xbb\xbf" + data, b"\n\n" + data, data.replace(b"\n", b"\r\n"), data.rstrip()))
        how = rng.randrange(3)
        show = ("data", "show", name, "-n", "9")
        if how == 0 and expect != "refused":
            arguments, writes = show, frozenset[str]()
        elif questions:
            arguments, writes = (
                ("data", "prepare", "gsm8k-tools", f"source={name}", "out=out.jsonl"),
                frozenset({"out.jsonl"}),
            )
        else:
            arguments, writes = (*SFT, f"data.train={name}"), frozenset[str]()
        if expect == "same" and data[:1] == b"\n" and "data.train=" in arguments[-1]:
            expect = "any"  # messages name lines, which differ
        yield Case(
            name=f"data-{number:04}",
            arguments=arguments,
            files={name: data},
            expect=expect,
            like=arguments,
            like_files={name: _lines(rows)},
            writes=writes,
        )
