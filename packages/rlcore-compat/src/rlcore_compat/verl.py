"""The config adapter of verl and of its fork for agents. The keys are in ``verl.toml``."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.config.adapters import Given, Translation

from rlcore_compat.tables import Refused, Several, Table, Words
from rlcore_compat.vocabulary import Vocabulary

_OPTIMISER = "actor_rollout_ref.actor.optim"
_ROLLOUT = "actor_rollout_ref.rollout"
_FILES = ("file", "jsonl", "rl_logging_board")
_SHARDING = {"megatron": "Megatron", "veomni": "VeOmni"}


def excluded_modules(value: Any, words: Words) -> None:
    if value is not None and "visual" not in str(value):
        raise Refused("lora.targets lists the layers to adapt: leave out those to exclude")


def updates(value: Any, words: Words) -> int:
    """Optimiser steps per rollout. verl multiplies the mini-batch size by ``rollout.n``, but not by ``num_chains``."""
    siblings = words.get(f"{_ROLLOUT}.n", 1)
    rows = (words.get("data.train_batch_size"), words.get("agent.num_chains", siblings), value, siblings)
    if not all(isinstance(number, int) and number > 0 for number in rows):
        raise Refused("depends on data.train_batch_size: give both, as positive integers")
    tasks, group_size, mini_batch, siblings = rows
    updates, rest = divmod(tasks * group_size, mini_batch * siblings)
    if rest or not updates:
        raise Refused(
            f"{tasks * group_size} trajectories per step are not divisible into mini-batches of {mini_batch * siblings}"
        )
    return int(updates)


def warmup_steps(value: Any, words: Words) -> Any:
    return Several() if isinstance(value, int) and value < 0 else value


def warmup_ratio(value: Any, words: Words) -> Any:
    given = words.get(f"{_OPTIMISER}.lr_warmup_steps", -1)
    return Several() if isinstance(given, int) and given >= 0 else value


def sharding(value: Any, words: Words) -> None:
    """``strategy`` of a model."""
    if value not in ("fsdp", "fsdp2"):
        instead = "strategy.id=fsdp2 divides the weights between processes"
        raise Refused(f"{_SHARDING.get(str(value), value)} is not supported; {instead}")


def model_engine(value: Any, words: Words) -> None:
    if value not in ("dp", "fsdp"):
        name = _SHARDING.get(str(value), value)
        raise Refused(f"{name} is not supported; strategy.id distributes updates over processes")


def vision_tower(value: Any, words: Words) -> str:
    return "frozen" if value else "trained"


def evaluation_temperature(value: Any, words: Words) -> Any:
    return 0.0 if words.get(f"{_ROLLOUT}.val_kwargs.do_sample") is False else value


def greedy(value: Any, words: Words) -> Any:
    return 0.0 if value is False else Several()


def no_cache(value: Any, words: Words) -> Any:
    return 0.0 if value is True else Several()


def trackers(value: Any, words: Words) -> list[str]:
    names = [str(name) for name in (value if isinstance(value, list) else [value])]
    return [*(name for name in names if name not in _FILES), "jsonl"]


def processes(value: Any, words: Words) -> Several:
    if not isinstance(value, int) or value < 1:
        raise Refused("must be a positive integer")
    if words.get("trainer.nnodes", 1) != 1:
        return Several({"strategy.id": "fsdp2"})  # `machines` sets their number
    return Several({"strategy.id": "fsdp2", "strategy.processes": value} if value > 1 else {})


def team(value: Any, words: Words) -> Several:
    """``ulysses_sequence_parallel_size`` of a supervised trainer, whose processes torchrun starts."""
    if not isinstance(value, int) or value < 1:
        raise Refused("must be a positive integer")
    started = os.environ.get("WORLD_SIZE", "1") != "1"
    return Several({"strategy.id": "fsdp2", "strategy.sequence_parallel": value} if value > 1 and started else {})


def machines(value: Any, words: Words) -> Several:
    """Several machines are those of the Ray cluster of this one, unless ``torchrun`` has started the processes."""
    if value == 1:
        return Several()
    here = words.get("trainer.n_gpus_per_node", 8)
    if not all(isinstance(number, int) and number > 0 for number in (value, here)):
        raise Refused("must be a positive integer")
    started = os.environ.get("WORLD_SIZE")
    if started is None:
        return Several({"strategy.id": "fsdp2", "strategy.address": "auto", "strategy.processes": value * here})
    if started != str(value * here):
        raise Refused(f"a launcher has started the processes, and their number is another one: WORLD_SIZE={started}")
    return Several()


def never_is_zero(value: Any, words: Words) -> Any:
    return 0 if isinstance(value, int) and value < 0 else value


def passes(value: Any, words: Words) -> Any:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Refused("must be a positive integer")
    return "1 pass" if value == 1 else f"{value} passes"


def pair(value: Any, words: Words) -> Several:
    """The prompt and the response of a row: columns, or fields of the objects in them, as ``COLUMN.FIELD``."""
    found = Several()
    for name, key, default in (("prompt", "prompt", "question"), ("completion", "response", "answer")):
        within = words.get(f"data.{key}_dict_keys") or []
        parts = [words.get(f"data.{key}_key", default), *(within if isinstance(within, list) else [within])]
        if not all(isinstance(part, str) for part in parts):
            raise Refused("must be the name of a column, or of a field in it")
        found[f"data.{name}"] = ".".join(parts)
    return found


def truncation(value: Any, words: Words) -> Any:
    """What verl does with a long conversation: without padding, it is cut whatever ``truncation`` is."""
    if words.get("data.pad_mode") == "no_padding":
        return "cut"
    given = words.get("data.truncation")
    if given is None:
        return Several()
    if given not in ("error", "right"):
        raise Refused("must be error or right: long conversations are cut at their end", of="data.truncation")
    return {"error": "raise", "right": "cut"}[given]


def frequency(value: Any, words: Words) -> Any:
    if value == "after_each_epoch":
        raise Refused("give a number of steps: rows of the training file / data.train_batch_size")
    return never_is_zero(value, words)


@dataclass(frozen=True, slots=True)
class _Verl:
    """The overrides of all trainers of verl. Implements `OverrideAdapter`.

    Several keys have another meaning in the supervised trainer, which is recognised by the keys that it alone has.
    """

    @property
    def keys(self) -> Collection[str]:
        return [*VERL.keys, *SUPERVISED.keys]

    def claims(self, key: str) -> bool:
        return VERL.claims(key) or SUPERVISED.claims(key)

    def read_overrides(self, overrides: Sequence[str], given: Given) -> Translation:
        chosen = {value for key, _, value in (text.partition("=") for text in given.overrides) if key in _TRAINER}
        supervised = chosen == {"sft"} if chosen else not all(VERL.claims(text.partition("=")[0]) for text in overrides)
        return (SUPERVISED if supervised else VERL).read_overrides(overrides, given)


_FILE = "rlcore_compat:verl.toml"
_TRAINER = ("trainer", "trainer.id")
VERL = Vocabulary(
    name="verl",
    tables=frozenset(
        {"actor_rollout_ref", "agent", "custom_reward_function", "distillation", "global_profiler", "reward_model"}
    ),
    meanings=Table(_FILE, "parts", "algorithm", "data", "lengths", "model", "updates", "rollouts", "run"),
)
"""The keys of its reinforcement learning."""
SUPERVISED = Vocabulary(name="verl", meanings=Table(_FILE, "run", "parts", "supervised"))
"""The keys of its supervised trainers."""
OVERRIDES = _Verl()

__all__ = ["OVERRIDES", "SUPERVISED", "VERL"]
