// The stream of facts, cut in pieces anywhere.

import assert from "node:assert/strict";
import test from "node:test";
import { reader } from "../../assets/js/stream.js";

test("facts are whole wherever the stream is cut", () => {
  const source =
    ': ping\n\nid: 1\ndata: {"seq":1}\n\n: ping\n\nid: 2\ndata: {"seq":2}\n\ndata: torn\n\ndata: {"seq":3}\n\n';
  for (let size = 1; size <= source.length; size += 1) {
    const read = reader();
    const found = [];
    for (let at = 0; at < source.length; at += size) found.push(...read(source.slice(at, at + size)));
    assert.deepEqual(
      found.map((event) => event.seq),
      [1, 2, 3],
      `${size} characters at a time`,
    );
  }
});

test("a fact of many megabytes is looked through once", () => {
  const text = "x".repeat(1 << 16);
  const read = reader();
  const begin = performance.now();
  read('data: {"seq":1,"text":"');
  for (let n = 0; n < 1024; n += 1) assert.deepEqual(read(text), []);
  const [event] = read('"}\n\n');
  assert.equal(event.text.length, 1 << 26);
  assert.ok(performance.now() - begin < 3000, `${performance.now() - begin} ms`);
});
