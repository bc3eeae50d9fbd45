import assert from "node:assert/strict";
import { test } from "node:test";
import { count, failureText, gibibytes, number, printable, seconds } from "../src/format";

const shown = <T>(show: (value: T) => string, pairs: [T, string][]) =>
  assert.deepEqual(pairs.map(([value]) => show(value)), pairs.map(([, text]) => text));

test("numbers are as precise as they are useful", () => {
  shown<number | null>(number, [
    [null, "–"],
    [NaN, "–"],
    [-0, "0"],
    [0.12345, "0.123"],
    [-0.5, "−0.500"],
    [12.345, "12.35"],
    [123.45, "123.5"],
    [12345.6, "12,346"],
    [0.00001, "1.0e−5"],
    [-3e12, "−3.0e12"],
  ]);
});

test("durations never show 60 seconds or 60 minutes", () => {
  shown<number | null>(seconds, [
    [null, "–"],
    [0.00001, "10 µs"],
    [0.0042, "4.2 ms"],
    [0.0996, "0.10 s"],
    [9.996, "10.0 s"],
    [59.7, "1 min 00 s"],
    [3599.6, "1 h 00 min"],
    [90_000, "1 d 1 h"],
  ]);
});

test("memory below a gibibyte is in mebibytes", () => {
  shown<number | null>(gibibytes, [
    [null, "–"],
    [0.25, "256 MiB"],
    [0.0712, "73 MiB"],
    [0.996, "1.00 GiB"],
    [13.37, "13.4 GiB"],
  ]);
});

test("counts have a plural", () => {
  const texts = [count(1, "trajectory"), count(2048, "trajectory"), count(0, "class"), count(3, "key")];
  assert.deepEqual(texts, ["1 trajectory", "2,048 trajectories", "0 classes", "3 keys"]);
});

test("text that hides or turns other text becomes visible, and all other text stays", () => {
  assert.equal(printable("a\u202eb\u0000\u200b\ud800\u{e0041}"), "a\\u202eb\\u0000\\u200b\\ud800\\u{e0041}");
  const kept = "tab\t line\n ünïcode 漢字 😀 👩\u200d🔬";
  assert.equal(printable(kept), kept);
});

test("a failure begins with what the judge said", () => {
  assert.equal(failureText("reward: reward judge: the judge is overloaded"), "the judge is overloaded (judge)");
  assert.equal(failureText("the tool failed"), "the tool failed");
});
