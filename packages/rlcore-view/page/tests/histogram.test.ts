import assert from "node:assert/strict";
import { test } from "node:test";
import type { Row } from "../src/api";
import { barsOf, fits, parsePick, printPick, valueOf } from "../src/histogram";

function row(tokens: number, failure: string | null = null): Row {
  const place = { purpose: "train", step: 1, group: 0, sibling: 0, task: "t", environment: "" } as const;
  return { ...place, reward: null, rewards: { a: 1 }, stop: "done", failure, tokens, turns: 1, metrics: { "x/y": 2 } };
}

test("few values have a bar each", () => {
  const bars = barsOf([1, 0, 1, 0.5]);
  assert.deepEqual(bars.map(({ low, high, count }) => [low, high, count]), [[0, 0, 1], [0.5, 0.5, 1], [1, 1, 2]]);
});

test("each value belongs to exactly one bar, also after the choice went through the address", () => {
  const values = Array.from({ length: 500 }, (_, index) => (index % 97) * 0.1);
  const bars = barsOf(values).filter(({ count }) => count);
  const picks = bars.map(({ low, high }) => parsePick(printPick({ column: "tokens", low, high }))!);
  assert.equal(bars.reduce((sum, { count }) => sum + count, 0), values.length);
  picks.forEach((pick, index) => {
    assert.equal(values.filter((value) => fits(row(value), pick)).length, bars[index]!.count);
  });
});

test("a choice of a word keeps characters that separate choices", () => {
  const pick = { column: "rewards/a|b", word: "50 % | more" };
  assert.deepEqual(parsePick(printPick(pick)), pick);
  assert.equal(parsePick("stop"), null);
});

test("failures that differ in numbers count together", () => {
  const failures = [3, 4].map((code) => valueOf(row(1, `the judge answered ${code}\nTraceback`), "failure"));
  assert.deepEqual(failures, ["the judge answered N", "the judge answered N"]);
  assert.equal(valueOf(row(1), "failure"), "without a failure");
  assert.deepEqual([valueOf(row(1), "rewards/a"), valueOf(row(1), "metrics/x/y")], [1, 2]);
});
