// What holds for every module of the console.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";

const assets = new URL("../../assets/", import.meta.url);
const modules = readdirSync(assets, { recursive: true })
  .filter((name) => name.endsWith(".js"))
  .map((name) => ({ name, lines: readFileSync(new URL(name, assets), "utf8").split("\n") }));

/** Lines of a function, or of another statement at the top of a module. */
const LONGEST = 60;

/** `[{name, at, length}]`: prettier puts the end of what begins in a column into the same one. */
function functions({ name, lines }) {
  const found = [];
  const begins = [/^(export )?(async )?(const |let |function )/, /^  (static |async |get |set )?#?\w+\(.*\{$/];
  for (const [depth, begin] of begins.entries()) {
    const here = new RegExp(`^ {${2 * depth}}\\S`);
    let from = null;
    lines.forEach((line, n) => {
      // The end of parameters on several lines is none of the function.
      if (!here.test(line) || /^\s*[\])}].*\{$/.test(line)) return;
      const ends = /^[}\])]/.test(line.trimStart());
      if (ends && from !== null) found.push({ name, at: lines[from], length: n - from + 1 });
      from = begin.test(line) ? n : null;
    });
  }
  return found;
}

test("every module is checked against its types", () => {
  assert.ok(modules.length > 20);
  for (const { name, lines } of modules) assert.equal(lines[0], "// @ts-check", name);
});

test("a function fits on a screen or two", () => {
  const all = modules.flatMap(functions).sort((a, b) => b.length - a.length);
  assert.ok(all.length > 200);
  const long = all.filter(({ length }) => length > LONGEST);
  assert.deepEqual(long, []);
});
