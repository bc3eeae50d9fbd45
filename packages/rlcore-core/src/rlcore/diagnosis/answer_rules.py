"""Rules about rollouts: rewards, answers and tool calls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rlcore.diagnosis.evidence import Evidence
from rlcore.episodes.answers import missed_calls, written_calls

STEPS = 3
"""Steps in a row in which most rules must hold, so that one unlucky step is no finding."""
MOSTLY = 0.5
ALWAYS = 0.9
FEW = 0.1
"""Calls per trajectory below which their shares say little."""
LONGEST = 160


def rewards_zero(run: Evidence) -> str | None:
    """The mean reward of three steps in a row is 0, and the rewards of all groups are equal, which training uses."""
    if run.setting("algorithm.advantage") == "none":
        return None
    rewards, solved = run.recent("reward/mean", STEPS), run.recent("accuracy", STEPS)
    equal = run.recent("groups/equal", STEPS) or [1.0 - share for share in solved]
    return f"steps {_span(run)}" if rewards and not any(rewards) and equal and min(equal) == 1.0 else None


def rewards_rare(run: Evidence) -> str | None:
    """In five steps in a row, at most 5 % of the trajectories succeed, and 80 % of the groups have equal rewards.

    The mean reward of the last step is not 0. A run in which all rewards are 0 is reported by `rewards-zero`.
    """
    solved, equal, rewards = run.recent("accuracy", 5), run.recent("groups/equal", 5), run.recent("reward/mean", 1)
    held = solved and equal and rewards and rewards[0] and max(solved) <= 0.05 and 0.8 <= min(equal) < 1.0
    return f"accuracy {solved[-1]:.3g}, {equal[-1]:.0%} of the groups in step {run.step}" if held else None


def rewards_maximal(run: Evidence) -> str | None:
    """Every trajectory of the first three steps succeeds. A run that learns may only end like this."""
    solved, equal = run.early("accuracy", STEPS), run.early("groups/equal", STEPS)
    held = len(run.rows) == STEPS and solved and equal and min(*solved, *equal) == 1.0
    return f"accuracy 1 in steps {_span(run)}" if held else None


def groups_equal(run: Evidence) -> str | None:
    """In three steps in a row, the rewards of all groups are equal, and neither 0 nor all successes."""
    if turn_rewards_missing(run) is not None:
        return None
    equal, rewards = run.recent("groups/equal", STEPS), run.recent("reward/mean", STEPS)
    solved = max(run.recent("accuracy", STEPS) or [0.0])
    return f"steps {_span(run)}" if equal and min(equal) == 1.0 and any(rewards) and solved < 1.0 else None


def turn_rewards_missing(run: Evidence) -> str | None:
    """`algorithm.turn_rewards` is `only`, and no turn of the last step has a reward."""
    if run.setting("algorithm.turn_rewards") != "only":
        return None
    rewards = [one.turn_reward for one in run.trajectories()]
    return "" if rewards and all(one is None for one in rewards) else None


def weights_negative(run: Evidence) -> str | None:
    """The weight of each reward is 0 or less."""
    weights = [table.get("weight", 1.0) for table in run.config.get("reward") or () if isinstance(table, Mapping)]
    held = run.rows and weights and all(isinstance(one, (int, float)) and one <= 0 for one in weights)
    return ", ".join(f"reward.{place}.weight={one:g}" for place, one in enumerate(weights)) if held else None


def siblings_equal(run: Evidence) -> str | None:
    """In 90 % of the groups of the first three steps, all answers are the same. A policy that has converged ends so."""
    same = run.early("groups/same_answers", STEPS)
    held = len(run.rows) == STEPS and same and min(same) >= ALWAYS
    names = ("temperature", "top_p", "top_k", "min_p", "max_new_tokens", "stop")
    values = {name: run.setting(f"rollout.{name}") for name in names}
    shown = ", ".join(f"rollout.{name}={value}" for name, value in values.items() if value not in (None, []))
    return f"{shown} in steps {_span(run)}" if held else None


def rewards_contradict(run: Evidence) -> str | None:
    """In three of five steps, and in 2 % of their groups, the same tokens have different rewards."""
    shares = [row.get("groups/contradictory", 0.0) for row in run.rows[-5:]]
    held = sum(share > 0 for share in shares) >= STEPS and sum(shares) / len(shares) >= 0.02
    return f"in {sum(shares) / len(shares):.0%} of the groups of {len(shares)} steps" if held else None


def rewards_shuffled(run: Evidence) -> str | None:
    """`algorithm.shuffle_rewards` is true, which is meant for control experiments."""
    return "a control experiment" if run.rows and run.setting("algorithm.shuffle_rewards") is True else None


def not_scored(run: Evidence) -> str | None:
    """A fifth of the trajectories of two steps in a row has no score."""
    lost = run.shares("not_scored", 2)
    if not lost or min(lost) < 0.2:
        return None
    reason = next((str(one.failure or _error(one)) for one in run.trajectories() if one.reward is None), "")
    return f"{lost[-1]:.0%} of step {run.step}{_first(reason)}"


def reward_raises(run: Evidence) -> str | None:
    """A reward fails in two steps in a row, but too rarely for `not-scored`."""
    counts = [
        sum(value for name, value in row.items() if name.startswith("reward_error/") and name.endswith("/error"))
        for row in run.rows[-2:]
    ]
    if len(counts) < 2 or not min(counts) or not_scored(run) is not None:
        return None
    return f"{counts[-1]:g} of step {run.step}{_first(next(filter(None, map(_error, run.trajectories())), ''))}"


def cut_by_turn(run: Evidence) -> str | None:
    """Half of the trajectories of two steps in a row end at `rollout.max_new_tokens` or `max_tokens` of a request."""
    cut, limit = run.shares("length/turn", 2), run.setting("rollout.max_new_tokens")
    if not cut or min(cut) < MOSTLY:
        return None
    first = next((one for one in run.trajectories() if one.stop == "length"), None)
    shown = f", the first ends with {_short(end[-40:])!r}" if first and (end := first.final_response) else ""
    asked = first.sampling.max_new_tokens if first and first.sampling else limit
    if limit is not None and asked < limit:
        limit, shown = asked, f", which is max_tokens of the agent's requests: raise that{shown}"
    return f"{cut[-1]:.0%} of step {run.step} at {limit} tokens{shown}"


def cut_by_context(run: Evidence) -> str | None:
    """In two steps in a row, half of the trajectories end at the limit of the context."""
    cut = run.shares("length/context", 2)
    return f"{cut[-1]:.0%} of step {run.step}" if cut and min(cut) >= MOSTLY else None


def turns_used_up(run: Evidence) -> str | None:
    """Half of the trajectories of two steps in a row end at the limit of turns, and less than half succeed."""
    share, limit = _unfinished(run), run.setting("environment.max_turns")
    if share is None or _longest(run) < limit:
        return None
    return f"{share:.0%} of step {run.step}, environment.max_turns={limit}"


def episodes_cut(run: Evidence) -> str | None:
    """Half of the trajectories of two steps in a row are cut before the limit of turns, and less than half succeed."""
    share, limit = _unfinished(run), run.setting("environment.max_turns")
    if share is None or (longest := _longest(run)) >= limit:
        return None
    return f"{share:.0%} of step {run.step} after at most {longest} turns, environment.max_turns={limit}"


def _unfinished(run: Evidence) -> float | None:
    """The share of trajectories without an end in the last step; None if most of two steps end, or half succeed."""
    ended, solved = run.shares("stop/max_turns", 2), run.recent("accuracy", 2)
    limited = run.setting("environment.max_turns")  # control episodes end at the limit of their simulator
    held = limited and ended and min(ended) >= MOSTLY and solved and max(solved) < MOSTLY
    return ended[-1] if held else None


def _longest(run: Evidence) -> float:
    """The most turns of the policy in a stored trajectory that was cut; infinite if there is none."""
    cut = [one for one in run.trajectories() if one.stop == "max_turns"]
    return max((sum(turn.kind == "policy" for turn in one.turns) for one in cut), default=math.inf)


def calls_unreadable(run: Evidence) -> str | None:
    """Half of the tool calls of two steps in a row are recognised, but cannot be parsed."""
    calls, shares = run.recent("tools/calls", 2), run.recent("tools/unreadable", 2)
    if not calls or min(calls) < FEW or not shares or min(shares) < MOSTLY:
        return None
    found = (call.error for one in run.trajectories() for call in written_calls(one) if call.error is not None)
    return f"{shares[-1]:.0%} of the calls of step {run.step}{_first(next(found, ''))}"


def calls_missed(run: Evidence) -> str | None:
    """In two steps in a row, there is such a call in one of ten trajectories, and one for every two that are read."""
    missed, calls = run.recent("tools/missed", 2), run.recent("tools/calls", 2)
    if not missed or not calls or min(missed) < FEW or min(missed) < MOSTLY * max(calls):
        return None
    first = next((message.text for one in run.trajectories() for message in missed_calls(one)), "")
    return f"{missed[-1]:.2g} per trajectory in step {run.step}{_first(first)}"


def tools_fail(run: Evidence) -> str | None:
    """In two steps in a row, 90 % of the tool calls fail, although they are parsed."""
    calls, errors = run.recent("tools/calls", 2), run.recent("tools/errors", 2)
    if not calls or not errors or min(calls) < FEW or max(run.recent("tools/unreadable", 2) or [0.0]) >= MOSTLY:
        return None
    shares = [failed / all_ for failed, all_ in zip(errors, calls, strict=True)]
    if min(shares) < ALWAYS:
        return None
    first = next((m.text for one in run.trajectories() for m in one.messages if m.role == "tool"), "")
    return f"{shares[-1]:.0%} of the calls of step {run.step}{_first(first)}"


def same_answer(run: Evidence) -> str | None:
    """In three steps in a row, 90 % of the answers to all tasks are the same, and less than half succeed."""
    share, solved = run.recent("answers/same", STEPS), run.recent("accuracy", STEPS)
    if not share or min(share) < ALWAYS or not solved or max(solved) >= MOSTLY:
        return None
    answer = next((one.final_response for one in run.trajectories() if one.final_response), "")
    return f"{share[-1]:.0%} of step {run.step}" + (f": {_short(answer)!r}" if answer else "")


def template_changed(run: Evidence) -> str | None:
    """In two steps in a row, half of the answers are cut, or half of the calls are unreadable.

    The rule is only for runs that set a chat template or format.
    """
    usual = {"model.chat_template": None, "model.chat_format": "auto"}
    chosen = [f"{key}={run.setting(key)}" for key in usual if run.setting(key) not in (None, usual[key])]
    shares = run.shares("stop/length", 2), run.recent("tools/unreadable", 2)
    return " and ".join(chosen) if chosen and any(min(pair, default=0.0) >= MOSTLY for pair in shares) else None


def warm_up_short(run: Evidence) -> str | None:
    """In the first step after a warm-up, half of the answers do not end, or half of the actions or calls fail."""
    updates = run.setting("warmup.steps")
    if not updates or len(run.rows) != 1:
        return None
    shares = {
        "answers do not end": _largest(run.shares("stop/length", 1)),
        "actions are invalid": _largest(run.early("info/invalid_actions"))
        / max(1.0, _largest(run.early("turns/mean"))),
        "calls cannot be parsed": _largest(run.early("tools/unreadable") if _calls(run) else []),
    }
    what, share = max(shares.items(), key=lambda item: item[1])
    return f"{share:.0%} of the {what} after {updates} updates" if share >= MOSTLY else None


def _calls(run: Evidence) -> bool:
    """Whether the first step has enough calls for shares of them; true if they are not counted."""
    return min(run.early("tools/calls"), default=FEW) >= FEW


def _error(trajectory: object) -> str:
    results = getattr(trajectory, "rewards", {}).values()
    return next((result.error for result in results if result.error), "")


def _span(run: Evidence) -> str:
    return f"{int(run.rows[-STEPS]['step'])} to {run.step}"


def _largest(values: Sequence[float]) -> float:
    return max(values, default=0.0)


def _first(text: str) -> str:
    """The first example, if there is one."""
    return f", the first: {_short(text)}" if text else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
