import assert from "node:assert/strict";
import { test } from "node:test";
import { link, parse } from "../src/address";

test("a link is parsed into what it was made of", () => {
  const path = ["run", "a/b ?#%&=ü~2", "train", "7"];
  const query = { where: 'reward == 0 and stop == "length"', text: "50 % & more + €", sort: "-reward" };
  assert.deepEqual(parse(link(path, query)), { path, query });
});

test("choices without a value are left out, and zero is a value", () => {
  assert.equal(link(["run", 3], { a: 0, b: "", c: undefined }), "#/run/3?a=0");
  assert.equal(link([]), "#/");
});

test("an address that somebody typed is read as far as possible", () => {
  assert.deepEqual(parse(""), { path: [], query: {} });
  assert.deepEqual(parse("#/run//50%/?x=%"), { path: ["run", "50%"], query: { x: "%" } });
});
