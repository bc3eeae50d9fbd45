import assert from "node:assert/strict";
import { test } from "node:test";
import type { Num, SegmentTokens } from "../src/api";
import { columnNames, endsOf, extremesOf, scaleOf } from "../src/trajectory/columns";

function tokens(columns: Record<string, Num[]>): SegmentTokens {
  const size = Object.values(columns)[0]?.length ?? 0;
  const each = <T>(value: T) => Array.from({ length: size }, () => value);
  return { ids: each(0), texts: each(""), trained: each(true), columns };
}

test("known columns come first, and those of plugins after them", () => {
  const names = columnNames(tokens({ "my/column": [1], entropy: [1], advantage: [1] }));
  assert.deepEqual(names, ["advantage", "entropy", "mask", "my/column"]);
});

test("a scale with a neutral value has opposite colours beside it and none at it", () => {
  const scale = scaleOf(tokens({ ratio: [0.5, 1, 1.5, null] }), "ratio");
  assert.deepEqual([scale.low, scale.high], [0.5, 1.5]);
  assert.match(scale.color(0.5) ?? "", /--scale-low\) 100%/);
  assert.match(scale.color(1.5) ?? "", /--scale-high\) 100%/);
  assert.equal(scale.color(1), "transparent");
  assert.equal(scale.color(null), undefined);
});

test("an outlier does not hide the other differences", () => {
  const values = [...Array.from({ length: 399 }, (_, index) => (index % 3) - 1), 1000];
  assert.equal(scaleOf(tokens({ advantage: values }), "advantage").high, 1);
});

test("the least likely tokens stand out", () => {
  const values = Array.from({ length: 40 }, (_, position) => (position === 7 ? -9 : position === 8 ? null : -0.1));
  const scale = scaleOf(tokens({ logprob: values }), "logprob");
  assert.deepEqual(extremesOf(scale), [7]);
  assert.deepEqual(endsOf(scale), [{ name: "lowest", position: 7 }]);
});

test("where many tokens are equally strong, a tenth of them stands out", () => {
  const scale = scaleOf(tokens({ advantage: Array.from({ length: 50 }, () => 0.5) }), "advantage");
  assert.equal(extremesOf(scale).length, 5);
  assert.deepEqual(endsOf(scale), []);
  assert.deepEqual(extremesOf(scaleOf(tokens({ advantage: [null, null] }), "advantage")), []);
});
