"""Rules about updates: steps without a change, and changes that are too large."""

from __future__ import annotations

from rlcore.diagnosis.evidence import TINY_RATE, Evidence, Row

STEPS = 3


def learning_rate_tiny(run: Evidence) -> str | None:
    """The rate of two steps in a row is below 1e-10: an update of AdamW is lost in the rounding of a weight."""
    rates = run.recent("learning_rate", 2)
    return f"{rates[-1]:g} in step {run.step}" if rates and max(rates) < TINY_RATE else None


def rate_warms_up(run: Evidence) -> str | None:
    """After three steps, the rate is below 2 % of its value, which it reaches only after the last step."""
    rates, wanted = run.recent("learning_rate", STEPS), run.setting("trainer.learning_rate")
    rising, steps = run.setting("trainer.lr_warmup_steps"), run.setting("trainer.steps")
    known = all(isinstance(one, (int, float)) for one in (wanted, rising, steps))
    if not known or not rates or rising < steps or max(rates) >= 0.02 * wanted:
        return None
    return f"{rates[-1]:g} in step {run.step}, trainer.lr_warmup_steps={rising}, trainer.steps={steps}"


def no_gradient(run: Evidence) -> str | None:
    """In two steps in a row there are updates and advantages that differ, but the norm of the gradient is 0."""
    norms, updates = run.recent("gradient_norm", 2), run.recent("updates", 2)
    signal = run.recent("advantage/std", 2) or [1.0]
    held = norms and max(norms) == 0.0 and updates and min(updates) > 0 and min(signal) > 0
    return "gradient_norm is 0 although advantages differ" if held else None


def reference_differs(run: Evidence) -> str | None:
    """The divergence of the first step is 0.5 nats per token or more, before the policy can have moved so far."""
    divergence = run.early("kl/mean")
    if len(run.rows) > STEPS or not divergence or divergence[0] < 0.5:
        return None
    return f"{divergence[0]:.3g} nats per token in step {int(run.rows[0]['step'])}, {_reference(run)}"


def divergence_high(run: Evidence) -> str | None:
    """The divergence of two steps in a row is 1 nat per token or more, and was below 0.5 in the first step."""
    divergence, first = run.recent("kl/mean", 2), run.early("kl/mean")
    held = divergence and min(divergence) >= 1.0 and first[0] < 0.5
    return f"{divergence[-1]:.3g} nats per token in step {run.step}" if held else None


def ratio_high(run: Evidence) -> str | None:
    """In two steps in a row, a token became a thousand times as likely within the step."""
    ratios = run.recent("ratio/max", 2)
    return f"ratio/max is {ratios[-1]:.3g} in step {run.step}" if ratios and min(ratios) >= 1000 else None


def clipped(run: Evidence) -> str | None:
    """In three steps in a row, it does so for 40 % of the tokens."""
    shares = run.recent("clip/fraction", STEPS)
    return f"{shares[-1]:.0%} of the tokens of step {run.step}" if shares and min(shares) >= 0.4 else None


def gradient_limited(run: Evidence) -> str | None:
    """In three steps in a row, the norm of the gradient is 50 times `trainer.max_gradient_norm`."""
    norms, limit = run.recent("gradient_norm", STEPS), run.setting("trainer.max_gradient_norm")
    if not norms or not isinstance(limit, (int, float)) or limit <= 0 or min(norms) < 50 * limit:
        return None
    return f"norm {norms[-1]:.3g} in step {run.step}, trainer.max_gradient_norm={limit:g}"


def engine_differs(run: Evidence) -> str | None:
    """In two steps in a row, the log-probabilities differ by 0.1 nats per token on average.

    With `schedule.ahead`, trajectories are from earlier policies, so only the gap on a fixed prompt is judged.
    """
    gaps = run.recent("sync/gap" if run.setting("schedule.ahead") else "logprob_gap/mean", 2)
    return f"{gaps[-1]:.3g} nats per token in step {run.step}" if gaps and min(gaps) >= 0.1 else None


def entropy_collapsed(run: Evidence) -> str | None:
    """In three steps in a row, entropy is below 0.02 nats and a tenth of the first step, and less than half succeed."""
    entropy, first = run.recent("entropy/mean", STEPS), run.early("entropy/mean")
    solved = run.recent("accuracy", STEPS)
    if not entropy or not first or not solved or min(entropy) < 0:  # that of continuous actions has no lower limit
        return None
    held = max(entropy) < min(0.02, 0.1 * first[0]) and max(solved) < 0.5
    return f"{entropy[-1]:.2g} nats per token in step {run.step}, {first[0]:.2g} in the first one" if held else None


def reward_fell(run: Evidence) -> str | None:
    """In two steps in a row, the mean reward is a quarter of the best one before, which was 0.1 or more."""
    rewards, now = [row["reward/mean"] for row in run.rows if "reward/mean" in row], run.recent("reward/mean", 2)
    best = max(rewards[:-2], default=0.0)
    held = now and best >= 0.1 and max(now) <= best / 4
    return f"{best:.3g} before, {now[-1]:.3g} in step {run.step}" if held else None


def loss_rises(run: Evidence) -> str | None:
    """In three steps in a row, the loss of supervised training is 1.2 times that of the first step."""
    now, first = run.recent("loss", STEPS), run.early("loss")
    held = len(run.rows) > STEPS and now and first and first[0] > 0 and min(now) > 1.2 * first[0]
    return f"{first[0]:.3g} in the first step, {now[-1]:.3g} in step {run.step}" if held else None


def length_drifts(run: Evidence) -> str | None:
    """In three steps in a row, answers have 4 times as many tokens as in the first step, or a quarter of them."""
    rows = run.rows[-STEPS:]
    if len(run.rows) <= STEPS:
        return None
    now, first = [_length(row) for row in rows], _length(run.rows[0])
    held = first >= 8 and min(now) > 0 and (min(now) >= 4 * first or max(now) <= first / 4)
    return f"{first:.0f} tokens per trajectory in the first step, {now[-1]:.0f} in step {run.step}" if held else None


def evaluation_falls(run: Evidence) -> str | None:
    """Reward or loss improved by 0.1 in training, and both of the last evaluations are worse than the first by 0.1."""
    if len(run.rows) < 2 * STEPS or len(run.evaluations) < 3:
        return None
    for trained, held_out, sign in (("reward/mean", "evaluation/reward", 1.0), ("loss", "evaluation/loss", -1.0)):
        gains = [sign * (b - a) for a, b in zip(run.early(trained, STEPS), run.recent(trained, STEPS), strict=True)]
        values = [sign * row[held_out] for row in run.evaluations if held_out in row]
        if gains and len(values) >= 3 and min(gains) >= 0.1 and max(values[-2:]) <= values[0] - 0.1:
            change = f"{held_out} from {abs(values[0]):.3g} to {abs(values[-1]):.3g}"
            return f"{trained} improved by {min(gains):.2g} or more, {change}"
    return None


def evaluation_lower(run: Evidence) -> str | None:
    """The accuracy of the last three evaluations is lower than that of the training steps before them by 0.4."""
    pairs = _accuracies(run)
    return _compared(pairs) if pairs and all(held_out < trained - 0.4 for trained, held_out in pairs) else None


def evaluation_higher(run: Evidence) -> str | None:
    """The accuracy of the last three evaluations is higher than that of the training steps before them by 0.4."""
    pairs = _accuracies(run)
    return _compared(pairs) if pairs and all(held_out > trained + 0.4 for trained, held_out in pairs) else None


def _accuracies(run: Evidence) -> list[tuple[float, float]]:
    """The mean accuracy of up to five training steps, and of the evaluation after them, for the last `STEPS`."""
    found = []
    for row in run.evaluations[-STEPS:]:
        step, held_out = row["step"], row.get("evaluation/accuracy")
        trained = [one["accuracy"] for one in run.rows if step - 5 < one["step"] <= step and "accuracy" in one]
        if trained and held_out is not None:
            found.append((sum(trained) / len(trained), held_out))
    return found if len(found) == STEPS else []


def _compared(pairs: list[tuple[float, float]]) -> str:
    trained, held_out = pairs[-1]
    return f"accuracy {trained:.3g} in training, evaluation/accuracy {held_out:.3g}"


def _length(row: Row) -> float:
    trajectories = sum(value for name, value in row.items() if name.startswith("stop/"))
    return row.get("tokens/sampled", 0.0) / trajectories if trajectories else 0.0


def _reference(run: Evidence) -> str:
    return f"algorithm.kl.reference={run.setting('algorithm.kl.reference') or 'the start of the run'}"
