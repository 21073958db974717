// Diffs and the timeline, as pure functions.

import assert from "node:assert/strict";
import test from "node:test";
import { parse, rows, size, words } from "../../assets/js/diff.js";
import { readFileSync } from "node:fs";
import { add, prepend, sentence, timeline } from "../../assets/js/fold.js";
import { clock } from "../../assets/js/text.js";

const DIFF = `--- a/src/due.rs
+++ b/src/due.rs
@@ -12,4 +12,4 @@ impl Ord for Task {
     fn cmp(&self, other: &Self) -> Ordering {
-        other.due.cmp(&self.due)
+        self.due.cmp(&other.due)
     }
 }
--- a/b.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
`;

test("files, hunks and line numbers", () => {
  const files = parse(DIFF);
  assert.deepEqual(
    files.map((file) => [file.path, file.hunks.length]),
    [
      ["src/due.rs", 1],
      ["b.txt", 1],
    ],
  );
  const { head, lines } = files[0].hunks[0];
  assert.equal(head, "impl Ord for Task {");
  assert.deepEqual(
    lines.map((line) => [line.sign, line.old, line.new]),
    [
      [" ", 12, 12],
      ["-", 13, null],
      ["+", null, 13],
      [" ", 14, 14],
      [" ", 15, 15],
    ],
  );
  assert.deepEqual(size(files), { added: 1, removed: 2 });
});

test("a removed line that looks like a header is a line", () => {
  const [file] = parse("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a\n+++ b\n same\n");
  assert.deepEqual(
    file.hunks[0].lines.map((line) => line.sign + line.text),
    ["--- a", "+++ b", " same"].map((text) => text),
  );
});

test("what is no diff is shown all the same", () => {
  assert.deepEqual(
    parse("+a")[0].hunks[0].lines.map((line) => line.sign + line.text),
    ["+a"],
  );
  assert.equal(parse("just words\nand more")[0].hunks[0].lines.length, 2);
  assert.match(parse("+a\u202eb")[0].hunks[0].lines[0].text, /<U\+202E>/);
});

test("words that changed are marked, and nothing is lost", () => {
  const [left, right] = words("other.due.cmp(&self.due)", "self.due.cmp(&other.due)");
  assert.equal(left.map((part) => part.text).join(""), "other.due.cmp(&self.due)");
  assert.equal(right.map((part) => part.text).join(""), "self.due.cmp(&other.due)");
  assert.deepEqual(
    left.filter((part) => part.changed).map((part) => part.text),
    ["other", "self"],
  );
  assert.ok(
    words("abc", "xyz")
      .flat()
      .every((part) => !part.changed),
    "lines with nothing in common are not marked",
  );
});

test("a removed line stands beside the one that replaces it", () => {
  const [{ hunks }] = parse("@@ -1,3 +1,2 @@\n-let a = one();\n-b two\n+let a = three();\n c\n");
  const pairs = rows(hunks[0].lines).map(({ left, right }) => [left?.text ?? null, right?.text ?? null]);
  assert.deepEqual(pairs, [
    ["let a = one();", "let a = three();"],
    ["b two", null],
    ["c", "c"],
  ]);
});

test("lines that were replaced as a whole stand beside each other", () => {
  const lines = parse("@@ -1,3 +1,2 @@\n-one\n-two\n-three\n+alpha\n+beta\n")[0].hunks[0].lines;
  assert.deepEqual(
    rows(lines).map(({ left, right }) => [left?.text ?? null, right?.text ?? null]),
    [
      ["one", "alpha"],
      ["two", "beta"],
      ["three", null],
    ],
  );
});

test("a diff made to keep a page busy does not", () => {
  const line = (word, n) => Array.from({ length: 140 }, (_, k) => `${word}${(n * 7 + k) % 97}`).join(" ");
  const stretch = (sign, word) => Array.from({ length: 60 }, (_, n) => `${sign}${line(word, n)}`).join("\n");
  const stretches = Array.from({ length: 12 }, () => `${stretch("-", "a")}\n${stretch("+", "b")}\n same`).join("\n");
  const begin = performance.now();
  const found = rows(parse(`@@ -1,732 +1,732 @@\n${stretches}`)[0].hunks[0].lines);
  const took = performance.now() - begin;
  assert.equal(found.length, 12 * 61);
  assert.ok(took < 1000, `${took} ms`);
});

const fold = (...events) => {
  const line = timeline();
  events.forEach(([kind, data], n) =>
    add(line, { seq: n + 1, session: "ses_a", at: "2026-01-01T00:00:00Z", kind, data }),
  );
  return line.items;
};
const update = (update) => ["update", { sessionId: "s", update }];
const chunk = (text, sessionUpdate = "agent_message_chunk") =>
  update({ sessionUpdate, content: { type: "text", text } });

test("chunks of a message are one message", () => {
  const items = fold(chunk("Hel"), chunk("lo"), chunk("hm", "agent_thought_chunk"), chunk("again"));
  assert.deepEqual(
    items.map((item) => [item.type, item.text]),
    [
      ["message", "Hello"],
      ["thought", "hm"],
      ["message", "again"],
    ],
  );
});

const cases = JSON.parse(readFileSync(new URL("fold-cases.json", import.meta.url), "utf8"));
const speakers = { message: "agent", thought: "thought", echo: "user" };
const messages = (line) => line.items.filter((item) => item.chunk).map(({ type, text }) => [speakers[type], text]);

test("a timeline is folded like every other view, wherever a page of the log ends", () => {
  for (const { name, events, messages: expected } of cases) {
    const facts = events.map(([kind, data], n) => ({
      seq: n + 1,
      session: "ses_a",
      at: "2026-01-01T00:00:00Z",
      kind,
      data,
    }));
    for (let seam = 0; seam <= facts.length; seam += 1) {
      for (let middle = 0; middle <= seam; middle += 1) {
        const line = timeline();
        for (const event of facts.slice(seam)) add(line, event);
        prepend(line, facts.slice(middle, seam));
        prepend(line, facts.slice(0, middle));
        assert.deepEqual(messages(line), expected, `${name}, with seams at ${middle} and ${seam}`);
      }
    }
  }
});

test("a message from before goes on with what comes next", () => {
  const facts = [chunk("Hel"), ["unknown", {}], chunk("lo")].map(([kind, data], n) => ({
    seq: n + 1,
    at: "",
    kind,
    data,
  }));
  const line = timeline();
  add(line, facts[1]);
  prepend(line, [facts[0]]);
  add(line, facts[2]);
  assert.deepEqual(messages(line), [["agent", "Hello"]]);
});

test("a fact has the daemon's sentence, with local times, and no raw JSON", () => {
  const words = (event) => sentence({ seq: 1, session: "ses_a", at: "", data: {}, ...event });
  assert.deepEqual(fold(["unknown", { message: { method: "_auth/status_update", params: { a: [1] } } }]), []);
  const ended = words({ kind: "turn.ended", summary: "turn ended: “so 'be' it”", tone: "plain" });
  assert.deepEqual(ended, { text: "Turn ended: “so 'be' it”", bad: false });
  const at = "2026-01-01T12:00:00.000Z";
  const snoozed = words({ kind: "stall.snoozed", summary: `left in peace until ${at} by ana`, tone: "quiet" });
  assert.equal(snoozed.text, `Left in peace until ${clock(at)} by ana`);
  assert.equal(words({ kind: "session.parked", summary: "parked: it dies", tone: "bad" }).bad, true);
});

test("a tool call is one item from its start to its end", () => {
  const call = (more) => update({ sessionUpdate: "tool_call", toolCallId: "t", ...more });
  const items = fold(
    call({ title: "cargo test", kind: "execute" }),
    ["status", { message: "x" }],
    update({ sessionUpdate: "tool_call_update", toolCallId: "t", status: "completed" }),
  );
  assert.deepEqual(
    [items.length, items[0].title, items[0].status, items[0].version],
    [2, "cargo test", "completed", 1],
  );
});

test("a clearance is one item, with its outcome", () => {
  const items = fold(
    ["clearance.requested", { clearance: "clr_1", title: "May I?", risk: "low" }],
    ["clearance.decided", { clearance: "clr_1", status: "denied", by: "ana", reason: "no" }],
    ["clearance.delivered", { clearance: "clr_1" }],
  );
  assert.deepEqual([items.length, items[0].state, items[0].data.by, items[0].events.length], [1, "denied", "ana", 3]);
  const { status, decided_by: by, reason, delivery } = items[0].standing;
  assert.deepEqual([status, by, reason, delivery], ["denied", "ana", "no", "delivered"]);
});

test("a plan grows while nothing is said, and is not repeated", () => {
  const beat = (done) => ["heartbeat", { progress: [{ label: "a", status: done ? "completed" : "pending" }] }];
  assert.equal(fold(beat(false), beat(true)).length, 1);
  assert.equal(fold(beat(false), ["status", { message: "x" }], beat(false)).length, 2);
  assert.equal(fold(["heartbeat", {}], ["heartbeat", { progress: [] }]).length, 0);
});

test("a prompt that waited stands where it left the queue, wherever a page of the log ends", () => {
  const prompt = (kind, more = {}) => [`prompt.${kind}`, { prompt: "prm_1", ...more }];
  const events = [
    ["status", { message: "one" }],
    prompt("queued", { text: "do it", by: "ana" }),
    ["status", { message: "two" }],
    prompt("amended", { text: "do that" }),
    ["status", { message: "three" }],
    prompt("sending", { turn: "trn_1" }),
    ["status", { message: "four" }],
    prompt("delivered"),
  ];
  const told = (items) => items.map((item) => item.text).join(", ");
  assert.equal(told(fold(...events)), "one, two, three, do that, four");
  assert.equal(told(fold(...events.slice(0, 5))), "one, do that, two, three");
  const facts = events.map(([kind, data], n) => ({ seq: n + 1, at: `2026-01-01T00:00:0${n}Z`, kind, data }));
  for (let seam = 1; seam < facts.length; seam += 1) {
    const line = timeline();
    for (const event of facts.slice(seam)) add(line, event);
    prepend(line, facts.slice(0, seam));
    assert.equal(told(line.items), "one, two, three, do that, four", `with a seam at ${seam}`);
    const item = line.items[3];
    assert.deepEqual([item.data.by, item.at, item.events.length], ["ana", facts[5].at, 4], `with a seam at ${seam}`);
  }
});

test("what came before is put in front as if it had been there", () => {
  const events = [
    chunk("one "),
    chunk("two "),
    ["clearance.requested", { clearance: "clr_1", title: "May I?" }],
    update({ sessionUpdate: "tool_call", toolCallId: "t", title: "make" }),
    chunk("three "),
    chunk("four "),
    ["status", { message: "x" }],
    ["clearance.decided", { clearance: "clr_1", status: "approved", by: "ana" }],
    update({ sessionUpdate: "tool_call_update", toolCallId: "t", status: "completed" }),
    ["question.asked", { question: "qst_1", text: "How?" }],
    chunk("five"),
  ].map(([kind, data], n) => ({ seq: n + 1, session: "ses_a", at: "2026-01-01T00:00:00Z", kind, data }));
  const seen = (line) =>
    line.items.map(({ seq, type, text, status, state, events }) => [seq, type, text, status, state, events.length]);
  const whole = timeline();
  for (const event of events) add(whole, event);
  for (let cut = 0; cut <= events.length; cut += 1) {
    for (let middle = 0; middle <= cut; middle += 1) {
      const line = timeline();
      for (const event of events.slice(cut)) add(line, event);
      prepend(line, events.slice(middle, cut));
      prepend(line, events.slice(0, middle));
      assert.deepEqual(seen(line), seen(whole), `cut at ${middle} and ${cut}`);
    }
  }
});

test("whatever an ACP agent tells has words", () => {
  const words = (update) => fold(["update", { update }]).map((item) => sentence(item.events[0]).text);
  assert.deepEqual(words({ sessionUpdate: "current_mode_update", currentModeId: "plan" }), ["Mode: plan"]);
  assert.deepEqual(words({ sessionUpdate: "session_info_update", title: "Fix it" }), ["Title: “Fix it”"]);
  assert.deepEqual(words({ sessionUpdate: "made_up", x: 1 }), []);
  assert.deepEqual(words({ sessionUpdate: 7 }), []);
});

test("nothing that an agent sends breaks the timeline", () => {
  for (const odd of [
    null,
    1,
    "x",
    [],
    {},
    { update: null },
    { update: {} },
    { update: { sessionUpdate: 7 } },
    { update: { sessionUpdate: "plan", entries: 1 } },
    { update: { sessionUpdate: "tool_call" } },
    { update: { sessionUpdate: "constructor" } },
    { update: { sessionUpdate: "plan", entries: [{ content: { toString: 1 }, status: null }] } },
    { progress: [{ label: { toString: 1, valueOf: null } }] },
    { update: { sessionUpdate: "agent_message_chunk", content: 1 } },
  ]) {
    for (const kind of ["update", "status", "heartbeat", "unknown", "made.up"]) {
      for (const item of fold([kind, odd]))
        if (item.type === "fact") assert.equal(typeof sentence(item.events[0]).text, "string");
    }
  }
});
