// Views in step with models.

import assert from "node:assert/strict";
import test from "node:test";
import { bindings } from "../../assets/js/bind.js";

/** Bindings of this model, with all that was rendered. */
function bound(model) {
  const rendered = [];
  const { bind, draw } = bindings();
  bind(model, (value) => rendered.push(value));
  return { rendered, draw };
}

test("a model is rendered at once, and again when a field of it is different", () => {
  let now = { name: "a", risk: null };
  const { rendered, draw } = bound(() => ({ ...now }));
  draw();
  now = { name: "a", risk: "high" };
  draw();
  draw();
  assert.deepEqual(rendered, [
    { name: "a", risk: null },
    { name: "a", risk: "high" },
  ]);
});

test("a field that comes, goes or changes its place is a difference", () => {
  for (const [before, after] of [
    [{}, { a: undefined }],
    [{ a: 1, b: undefined }, { a: 1 }],
    [[1, 2], [1]],
    [
      [1, 2],
      [2, 1],
    ],
    [{ a: undefined }, { b: undefined }],
    [null, {}],
    [[], {}],
    [0, null],
  ]) {
    let now = before;
    const { rendered, draw } = bound(() => now);
    now = after;
    draw();
    assert.deepEqual(rendered, [before, after]);
  }
});

test("an object inside of a model counts as different when it is another one", () => {
  let items = [1];
  const { rendered, draw } = bound(() => ({ items }));
  draw();
  items = [1];
  draw();
  assert.equal(rendered.length, 2);
});

test("what cannot be compared field by field is compared as it is", () => {
  let now = new Map([[1, 2]]);
  const { rendered, draw } = bound(() => now);
  draw();
  now = new Map([[1, 2]]);
  draw();
  assert.equal(rendered.length, 2);
});

test("bindings are drawn in their order", () => {
  const { bind, draw } = bindings();
  let n = 0;
  const order = [];
  bind(
    () => n,
    () => order.push("first"),
  );
  bind(
    () => n,
    () => order.push("second"),
  );
  n += 1;
  draw();
  assert.deepEqual(order, ["first", "second", "first", "second"]);
});
