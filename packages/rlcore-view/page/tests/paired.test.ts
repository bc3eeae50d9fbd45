import assert from "node:assert/strict";
import { test } from "node:test";
import type { Row } from "../src/api";
import { changeOf, compare, pairsOf } from "../src/paired";

function row(task: string, reward: number | null, environment = ""): Row {
  const place = { purpose: "evaluation", step: 0, group: 0, sibling: 0 } as const;
  const rest = { rewards: {}, stop: "done", failure: null, tokens: 1, turns: 1, metrics: {} };
  return { ...place, task, environment, reward, ...rest };
}

/** Quantiles of Student's distribution that have a closed form, by degrees of freedom. */
const P = 0.975;
const CLOSED: Record<number, number> = {
  1: Math.tan(Math.PI * (P - 0.5)),
  2: (2 * P - 1) / Math.sqrt(2 * P * (1 - P)),
  4: 2 * Math.sqrt(Math.cos(Math.acos(Math.sqrt(4 * P * (1 - P))) / 3) / Math.sqrt(4 * P * (1 - P)) - 1),
};

test("the interval is that of Student for paired differences", () => {
  for (const [degrees, quantile] of Object.entries(CLOSED)) {
    const size = Number(degrees) + 1;
    const tasks = Array.from({ length: size }, (_, index) => String(index));
    const differences = tasks.map((_, index) => 0.1 * index ** 2);
    const first = tasks.map((task, index) => row(task, index / 2));
    const second = tasks.map((task, index) => row(task, index / 2 + differences[index]!));
    const { difference, margin } = compare(pairsOf(first, second));
    const mean = differences.reduce((sum, each) => sum + each, 0) / size;
    const squares = differences.reduce((sum, each) => sum + (each - mean) ** 2, 0);
    const expected = quantile * Math.sqrt(squares / Number(degrees) / size);
    assert.ok(Math.abs(difference - mean) < 1e-12);
    assert.ok(Math.abs((margin ?? 0) / expected - 1) < 0.01, `${degrees} degrees: ${margin} instead of ${expected}`);
  }
});

test("samples of a task are one observation, and unscored ones are none", () => {
  const first = [row("a", 0), row("a", 1), row("b", 1), row("c", null)];
  const pairs = pairsOf(first, [row("a", 1), row("b", null), row("c", 1), row("d", 1)]);
  assert.deepEqual(pairs.map(({ task, before, after }) => [task, before, after]), [["a", 0.5, 1]]);
  assert.equal(compare(pairs).margin, null);
  assert.equal(changeOf(pairs[0]!, 1), "wrong → right");
  assert.equal(changeOf(pairs[0]!, 0.5), "right in both");
});

test("tasks of the same name in two environments are two tasks", () => {
  const pairs = pairsOf([row("1", 0, "x"), row("1", 1, "y")], [row("1", 1, "y"), row("1", 0, "x")]);
  assert.deepEqual(pairs.map(({ difference }) => difference), [0, 0]);
});
