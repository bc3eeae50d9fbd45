import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message, Trajectory } from "../src/api";
import { byReward, columnsOf, differencesOf } from "../src/siblings";
import { firstDifference, sharedBeginning } from "../src/trajectory/difference";

function said(role: Message["role"], text: string, code = ""): Message {
  const calls = code ? [{ name: "python", arguments: "", code, error: null }] : [];
  return { role, parts: [{ text }], calls, name: "" };
}

function sibling(number: number, reward: number | null, ...answers: Message[]): Trajectory {
  const turn = { start: 0, end: 1, reward: null, finish_reason: "stop", versions: [0], note: null };
  const turns = [
    { ...turn, kind: "observation" as const, messages: [said("user", "How many?")] },
    { ...turn, kind: "policy" as const, messages: answers },
  ];
  const row = { purpose: "train", step: 1, group: 0, sibling: number, task: "t", environment: "", reward } as const;
  return {
    row: { ...row, rewards: {}, stop: "done", failure: null, tokens: 1, turns: 1, metrics: {} },
    segments: [{ context: [], turns, tokens: 2, series: [] }],
    notes_problem: "",
    rewards: [],
    failure: null,
    times: [],
  };
}

test("the first difference is a character of a text, an image, a call or a message", () => {
  const one = [said("user", "How many?"), said("assistant", "It is 4.")];
  const differs = (message: Message) => firstDifference(one, [one[0]!, message]);
  assert.deepEqual(differs(said("assistant", "It is 5.")), { message: 1, piece: 0, offset: 6 });
  assert.deepEqual(differs(said("assistant", "It is 4.", "2+2")), { message: 1, piece: 1, offset: 0 });
  assert.deepEqual(differs(said("tool", "It is 4.")), { message: 1, piece: 0, offset: 0 });
  assert.deepEqual(firstDifference(one, one.slice(0, 1)), { message: 1, piece: 0, offset: 0 });
  assert.equal(firstDifference(one, structuredClone(one)), null);
});

test("a mark does not cut a character of two units", () => {
  const place = firstDifference([said("user", "ok 😀")], [said("user", "ok 😁")]);
  assert.deepEqual(place, { message: 0, piece: 0, offset: 3 });
});

test("siblings with the same messages and result share a column, the best first", () => {
  const four = said("assistant", "It is 4.");
  const five = said("assistant", "It is 5.");
  const group = [sibling(0, 0, five), sibling(1, 1, four), sibling(2, 0, five), sibling(3, null, five)];
  const columns = columnsOf([...group].sort(byReward));
  const numbers = columns.map((column) => column.map(({ row }) => row.sibling));
  assert.deepEqual(numbers, [[1], [0, 2], [3]]);
  assert.equal(sharedBeginning(group), 1);
});

test("the first column shows the earliest difference of the others", () => {
  const answers = ["It is 4.", "It is 5.", "So it is 4.", "It is 4."];
  const places = differencesOf(answers.map((text, number) => sibling(number, 0, said("assistant", text))));
  assert.deepEqual(places.map((place) => place && place.offset), [0, 6, 0, null]);
  assert.deepEqual(differencesOf([]), []);
});
