// Where the items of a long list stand.

import assert from "node:assert/strict";
import test from "node:test";
import { Heights } from "../../assets/js/virtual/heights.js";

test("heights are guessed until they are measured, and every item is found where it stands", () => {
  const heights = new Heights();
  const list = Array.from({ length: 1000 }, (_, n) => ({ n }));
  const guess = heights.place(list) / 1000;
  assert.ok(heights.measure(list[1], 10));
  assert.ok(!heights.measure(list[1], 10), "the same height is no news");
  assert.ok(!heights.measure(list[2], 0), "what is not in the page has no height");
  assert.equal(heights.place(list), 999 * guess + 10);
  list.forEach((item, n) => {
    const at = heights.at(heights.offset(n) + 1);
    assert.deepEqual([at.index, at.item, at.offset], [n, item, 1]);
  });
  assert.equal(heights.find(1e9), 1000);
});

test("a list that has grown is placed anew, and an empty one has nothing", () => {
  const heights = new Heights();
  const list = [];
  assert.equal(heights.place(list), 0);
  assert.equal(heights.at(0), null);
  list.push({});
  const one = heights.place(list);
  list.push({}, {});
  assert.equal(heights.place(list), 3 * one);
  assert.equal(heights.find(2 * one), 2);
});
