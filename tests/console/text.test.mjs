// What agents wrote, made safe: the same as src/text.rs.

import assert from "node:assert/strict";
import test from "node:test";
import { readFileSync } from "node:fs";
import { about, actor } from "../../assets/js/auditwords.js";
import * as text from "../../assets/js/text.js";
import { blocks, inline } from "../../assets/js/markdown.js";
import { languageOf, tokens } from "../../assets/js/syntax.js";

test("what deceives is written out", () => {
  assert.equal(text.clean("rm \u202ecod.exe"), "rm <U+202E>cod.exe");
  assert.equal(text.clean("pass\u200bword\ufeff\u001b[31m"), "pass<U+200B>word<U+FEFF><U+001B>[31m");
  assert.equal(text.clean("a\ufe0f\u{e0041}"), "a<U+FE0F><U+E0041>");
  assert.equal(text.clean("a\n\tb"), "a⏎ b");
  assert.equal(text.cleanBlock("a\n\tb\r"), "a\n\tb<U+000D>");
  assert.equal(text.clean("\ud800x"), "<U+D800>x");
});

test("ordinary text of any language stays", () => {
  const ordinary = "Grüße, 世界, مرحبا, ✔\ufe0f 🎉";
  assert.equal(text.clean(ordinary), ordinary);
});

test("nothing that deceives survives", () => {
  const bad = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;
  for (let point = 0; point < 0x3000; point += 1)
    assert.ok(!bad.test(text.clean(`a${String.fromCodePoint(point)}b`)), point.toString(16));
});

test("times in a sentence of the daemon are local", () => {
  const at = "2026-01-01T12:00:00.000Z";
  assert.equal(text.localTimes(`already approved by ana at ${at}.`), `already approved by ana at ${text.clock(at)}.`);
  assert.equal(text.localTimes("no time 2026-01-01"), "no time 2026-01-01");
});

test("only http leads anywhere", () => {
  assert.equal(text.target("https://example.org/a"), "https://example.org/a");
  for (const bad of [
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    " \u0001javascript:alert(1)",
    "//x",
    "https://user@evil.example",
    "nonsense",
  ]) {
    assert.equal(text.target(bad), null, bad);
  }
});

test("times and ids are short", () => {
  assert.deepEqual([0, 59e3, 61e3, 3600e3, 90061e3].map(text.span), ["0s", "59s", "1m 1s", "1h", "1d 1h"]);
  assert.equal(text.short("ses_0123456789abcdef"), "ses_01234567");
  assert.equal(text.project("/home/ana/shop/"), "shop");
});

test("Markdown becomes blocks, and markup stays text", () => {
  const kinds = blocks(
    "# Hi\n\ntext <script>alert(1)</script>\n\n```rust\nfn main() {}\n```\n- a\n  - b\n1. c\n> q\n\n| a | b |\n|---|---|\n| 1 | 2 |\n---",
  ).map((block) => block.type);
  assert.deepEqual(kinds, ["heading", "paragraph", "code", "list", "quote", "table", "rule"]);
  assert.equal(blocks("<img src=x onerror=alert(1)>")[0].text, "<img src=x onerror=alert(1)>");
  assert.deepEqual(blocks("```\nnever closed"), [{ type: "code", language: "", text: "never closed" }]);
});

test("inline marks", () => {
  const kinds = (source) => inline(source).map((part) => part.type);
  assert.deepEqual(kinds("a `b` **c** *d* ~~e~~"), ["text", "code", "text", "strong", "text", "em", "text", "del"]);
  assert.deepEqual(inline("[x](javascript:alert(1)"), [{ type: "link", text: "x", href: "javascript:alert(1" }]);
  assert.deepEqual(inline("snake_case_name 2*3*4"), [{ type: "text", text: "snake_case_name 2*3*4" }]);
  assert.deepEqual(kinds("see https://example.org/a."), ["text", "link", "text"]);
});

test("a long hostile line is read in no time", () => {
  const begin = performance.now();
  for (const piece of ["*", "_", "`", "[", "![a](", "**a", "> ", "|", "- ", "https://", "~~"]) {
    for (const block of blocks(piece.repeat(20000))) if (block.text) inline(block.text.slice(0, 20000));
  }
  assert.ok(performance.now() - begin < 5000, `${performance.now() - begin} ms`);
});

test("colours change no character", () => {
  for (const line of [
    'let x = "a\\"b"; // no',
    "def f(x): # y",
    "'a' 'b",
    "x = 0xff + 1.5e3",
    "SELECT * FROM t -- c",
    "",
  ]) {
    for (const language of ["rust", "python", "sql", "js", null])
      assert.equal(
        tokens(line, language)
          .map((token) => token.text)
          .join(""),
        line,
      );
  }
  assert.equal(languageOf("src/a.rs"), "rust");
  assert.equal(languageOf("Makefile"), "shell");
  assert.equal(languageOf("x"), null);
  assert.deepEqual(tokens("let a", "rust")[0], { text: "let", kind: "word" });
});

test("no line takes long to read", () => {
  for (const line of [
    `# a${" ".repeat(100000)}b`,
    `|a|\n${" ".repeat(100000)}x`,
    "**a ".repeat(50000),
    "`".repeat(100000),
  ]) {
    const begun = performance.now();
    for (const block of blocks(line)) if (block.text) inline(block.text);
    assert.ok(performance.now() - begun < 500, `${line.slice(0, 10)}… took ${performance.now() - begun} ms`);
  }
});

test("what was used is said in turns, tokens and money, as far as an agent tells it", () => {
  const spent = { turns: 2, input_tokens: 1000, output_tokens: 234, total_tokens: 0, cost: 0.42, currency: "USD" };
  assert.equal(text.usage(spent), "2 turns, 1,234 tokens, 0.42 USD");
  assert.equal(text.usage({ ...spent, turns: 1, total_tokens: 5, cost: 0.0018 }), "1 turn, 5 tokens, 0.0018 USD");
  assert.equal(text.usage({ ...spent, input_tokens: 0, output_tokens: 0, cost: 0, currency: null }), "2 turns");
  assert.equal(text.usage(null), "");
});

test("a clearance is one line: what would run or change, then the agent's title in quotes", () => {
  assert.equal(text.line({ action: "rm -rf build", title: "Clean up" }), "rm -rf build “Clean up”");
  assert.equal(text.line({ action: "rm -rf build", title: "`rm -rf build`" }), "rm -rf build");
  assert.equal(text.line({ action: null, title: "Clean\nup" }), "“Clean⏎up”");
  assert.equal(text.line({ action: "ls", title: "x” approved by “ana" }), "ls “x' approved by 'ana”");
});

test("a row of the audit is in the words of the command line, with names", () => {
  const cases = JSON.parse(readFileSync(new URL("audit-cases.json", import.meta.url), "utf8"));
  for (const [action, data, expected] of cases) assert.equal(about(action, data), expected, action);
  const name = (id) => (id === "ses_1" ? "shop" : id);
  assert.equal(actor({ by: "ana", actor: "person", data: { via: "slack" } }, name), "person ana (slack)");
  assert.equal(actor({ by: "tests", actor: "rule", data: { via: "policy" } }, name), "rule tests");
  assert.equal(actor({ by: "grt_9zxf1vmef3q6qx43", actor: "rule", data: null }, name), "grant grt_9zxf1vme");
  assert.equal(actor({ by: "agent of ses_1", actor: "agent", data: {} }, name), "agent of shop");
  assert.equal(actor({ by: "intercom", actor: null, data: null }, name), "intercom");
  for (const odd of [null, 1, [], { title: { toString: 1 }, approvals: {}, rule: [], grant: 7 }])
    for (const [action] of cases) assert.equal(typeof about(action, odd), "string");
});
