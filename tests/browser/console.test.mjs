// The console as people use it: a real browser against the real daemon with real processes.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import test, { after, before } from "node:test";
import {
  acpFixture,
  browser,
  Daemon,
  fixture,
  go,
  press,
  signedIn,
  text,
  until,
  visitor,
  waitText,
  withRole,
} from "./harness.mjs";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const clearance = (id, params) => `clearance:${id}:${JSON.stringify(params)}`;

/** An agent with a name, in the form of the configuration. */
const profile = (name, steps, more = "") =>
  `[agents.${name}]\ncommand = "${fixture}"\nargs = ${JSON.stringify(steps)}\n${more}\n`;

let daemon;
before(
  async () =>
    (daemon = await Daemon.start({
      config: profile("coder", [
        clearance(1, { title: "Run the tests", command: "cargo test", tool: "execute", risk_level: "low" }),
        "answer:1",
        "serve",
      ]),
    })),
);
after(async () => {
  await browser.close();
  await daemon?.close();
});

/** Nothing went wrong in the page, and nothing was fetched from elsewhere. */
async function well(person, { except = /^$/ } = {}) {
  assert.deepEqual(
    person.trouble.filter((each) => !except.test(each)),
    [],
  );
  const elsewhere = person.requests.filter((url) => !url.startsWith(daemon.url) && !/^(data|blob|about):/.test(url));
  assert.deepEqual(elsewhere, []);
  await person.context.close();
}

const DIFF = "--- a/a.rs\n+++ b/a.rs\n@@ -1,2 +1,2 @@\n fn main() {\n-    one();\n+    two();\n";

async function pendingOf(session) {
  const found = await until("a clearance", async () =>
    (await daemon.json("clearances")).items.find((each) => each.session === session),
  );
  return found.id;
}

const cardOf = (id) => `article.card[data-id="${id}"]`;
/** The card with its change, which is fetched when one gets there. */
const wholeCard = (id) => `${cardOf(id)}:not([aria-busy])`;

test("the first page is small and soon there", async () => {
  const person = await visitor();
  const client = await person.page.createCDPSession();
  await client.send("Network.enable");
  await client.send("Network.clearBrowserCache");
  let bytes = 0;
  client.on("Network.loadingFinished", ({ encodedDataLength }) => (bytes += encodedDataLength));
  const link = await daemon.cli("console");
  const begin = performance.now();
  await person.page.goto(link);
  await person.page.waitForSelector("html[data-ready=yes]");
  const took = performance.now() - begin;
  console.log(`first page: ${(bytes / 1024).toFixed(0)} KB, interactive after ${took.toFixed(0)} ms`);
  assert.ok(bytes < 150 * 1024, `${bytes} bytes`);
  assert.ok(took < 1000, `${took} ms`);
  assert.equal(await person.page.evaluate(() => location.hash), "", "the code has left the address");
  await well(person);
});

test("a link works once, a token works, and signing out ends it", async () => {
  const link = await daemon.cli("console");
  const first = await visitor();
  await first.page.goto(link);
  await first.page.waitForSelector(".sidebar");
  const second = await visitor();
  await second.page.goto(link);
  await second.page.waitForSelector("#token");
  assert.match(await text(second.page, ".trouble"), /already used or has expired.*intercom console/);
  await second.page.type("#token", await daemon.cli("token", "create", "--name", "ana", "--role", "approver"));
  await second.page.keyboard.press("Enter");
  await second.page.waitForSelector(".sidebar");
  await go(first.page, "#/settings", "table");
  await waitText(first.page, "td", "ana");
  await press(first.page, "Sign out");
  await first.page.waitForSelector("#token");
  // The other one is shown out by an admin, at once.
  const sessions = await daemon.json("token", "list");
  await daemon.cli("token", "revoke", sessions.items.find((each) => each.name === "ana" && each.valid).id);
  await second.page.waitForSelector("#token");
  await well(first);
  await well(second, { except: /40[13]/ });
});

test("the demo, approved from start to end with the mouse", async () => {
  const own = await Daemon.start({ demo: true });
  try {
    const person = await visitor();
    await person.page.goto(await own.cli("console"));
    await person.page.waitForSelector("a.session.waiting");
    await person.page.click("a.session.waiting");
    await press(person.page, "Continue", ".card.question");
    await press(person.page, "Allow once", ".card.risk-low");
    await waitText(person.page, ".item", "12 passed");
    const hold = await person.page.waitForSelector(".card.risk-high button.hold");
    await hold.click();
    assert.equal((await own.json("clearances")).items.length, 1, "a short press is not enough");
    await hold.click({ delay: 1300 });
    await waitText(person.page, ".item.message", "Done: the fix is in, the old cache is gone");
    await person.page.waitForFunction(() => document.title.startsWith("demo") || !document.title.startsWith("("));
    assert.deepEqual(person.trouble, []);
    await person.context.close();
  } finally {
    await own.close();
  }
});

test("denied with a reason, which reaches the agent", async () => {
  const session = await daemon.run(
    [clearance(1, { title: "Edit a.rs", file_path: "a.rs", diff: DIFF, risk_level: "low" }), "answer:1", "serve"],
    "--name",
    "denied",
  );
  const id = await pendingOf(session);
  const person = await signedIn(daemon);
  await go(person.page, "#/clearances", wholeCard(id));
  assert.match(await text(person.page, `${cardOf(id)} .diff`), /one\(\);.*two\(\);/s);
  assert.equal(
    await person.page.$$eval(`${cardOf(id)} .changed`, (all) => all.map((each) => each.textContent).join(" ")),
    "one two",
  );
  await press(person.page, "Deny with reason…", cardOf(id));
  await person.page.type("#reason", "not like this");
  await press(person.page, "Deny", "dialog");
  await waitText(person.page, `${cardOf(id)} .fate`, "delivered");
  assert.match(await text(person.page, `${cardOf(id)} .outcome`), /Denied by .*not like this/s);
  const shown = await daemon.json("clearances", id);
  assert.deepEqual([shown.status, shown.reason], ["denied", "not like this"]);
  // Who comes later reads the same in the timeline.
  await person.page.reload();
  await go(person.page, `#/s/${session}`, ".item.clearance");
  await waitText(person.page, ".item.clearance .settlement", `Denied by ${shown.decided_by}`);
  assert.match(await text(person.page, ".item.clearance .settlement"), /delivered “not like this”/);
  await well(person);
});

/** Holds the decisions of these people until all have been made: a page that hears of another's takes its buttons away. */
async function decideTogether(people) {
  const held = [];
  for (const { page } of people) {
    await page.setRequestInterception(true);
    page.on("request", (request) => {
      if (!request.url().endsWith("/decision")) return request.continue();
      held.push(request);
      if (held.length === people.length) held.forEach((one) => one.continue());
    });
  }
}

test("two browsers race for one clearance: one wins, the other is told who", async () => {
  const session = await daemon.run([
    clearance(1, { title: "Race", file_path: "a", risk_level: "low" }),
    "answer:1",
    "serve",
  ]);
  const id = await pendingOf(session);
  const [one, two] = await Promise.all([signedIn(daemon), withRole(daemon, "approver")]);
  await Promise.all([one, two].map((person) => go(person.page, "#/clearances", cardOf(id))));
  await decideTogether([one, two]);
  await Promise.all([press(one.page, "Allow once", cardOf(id)), press(two.page, "Deny", cardOf(id))]);
  await Promise.all([one, two].map((person) => person.page.waitForSelector(`${cardOf(id)}.settled`)));
  const { status, decided_by: by } = await daemon.json("clearances", id);
  const word = status === "approved" ? "Allowed" : "Denied";
  for (const person of [one, two]) await waitText(person.page, `${cardOf(id)} .fate`, `${word} by ${by}`);
  await Promise.race([one, two].map((person) => waitText(person.page, ".toast", "Too late")));
  await well(one, { except: /409/ });
  await well(two, { except: /409/ });
});

test("a double click decides once, and the page says what was done", async () => {
  const session = await daemon.run([
    clearance(1, { title: "Twice", file_path: "a", risk_level: "low" }),
    "answer:1",
    "question:q:How?",
    "answer:q",
    "serve",
  ]);
  const id = await pendingOf(session);
  const person = await signedIn(daemon);
  const { page } = person;
  await page.evaluate(() => {
    window.said = [];
    new MutationObserver((all) =>
      all.forEach((each) => each.addedNodes.forEach((node) => window.said.push(node.textContent))),
    ).observe(document.getElementById("announce"), { childList: true });
  });
  await go(page, `#/s/${session}`, wholeCard(id));
  const twice = async (selector) => (await page.waitForSelector(selector)).click({ count: 2 });
  await twice(`${cardOf(id)} .actions button.primary`);
  await page.waitForFunction(() => window.said.includes("Allowed: a “Twice”"));
  await twice(".card.question .actions button.primary");
  await page.waitForFunction(() => window.said.includes("Answered: continue"));
  const said = await page.evaluate(() => window.said.filter((each) => /Too late|approvals/.test(each)));
  assert.deepEqual(said, []);
  await daemon.cli("kill", session);
  await well(person);
});

test("where two have to approve, everybody sees who has", async () => {
  const own = await Daemon.start({ config: "[clearances.quorum]\nlow = 2\n" });
  try {
    await own.run([clearance(1, { title: "Two", file_path: "a", risk_level: "low" }), "answer:1", "serve"]);
    const [one, two] = [await signedIn(own), await withRole(own, "approver")];
    for (const { page } of [one, two]) await go(page, "#/clearances", ".card");
    await press(one.page, "Allow once", ".card");
    await waitText(one.page, ".toast", "1 of 2 approvals");
    for (const { page } of [one, two]) await waitText(page, ".card .facts", "1 of 2 (");
    await press(two.page, "Allow once", ".card");
    for (const { page } of [one, two]) await waitText(page, ".card .fate", "Allowed by approver");
    assert.deepEqual([...one.trouble, ...two.trouble], []);
    await Promise.all([one, two].map(({ context }) => context.close()));
  } finally {
    await own.close();
  }
});

test("somebody else decides on the command line: the card says so at once", async () => {
  const session = await daemon.run([
    clearance(1, { title: "Elsewhere", file_path: "a", risk_level: "low" }),
    "answer:1",
    "serve",
  ]);
  const id = await pendingOf(session);
  const person = await signedIn(daemon);
  await go(person.page, `#/s/${session}`, wholeCard(id));
  await daemon.cli("approve", id);
  await waitText(person.page, `${cardOf(id)} .fate`, "Allowed by");
  await well(person);
});

test("with the keyboard only", async () => {
  const low = await daemon.run(
    [clearance(1, { title: "Keys low", file_path: "a", risk_level: "low" }), "answer:1", "serve"],
    "--name",
    "keys-low",
  );
  const high = await daemon.run(
    [clearance(1, { title: "Keys high", file_path: "a", risk_level: "high" }), "answer:1", "serve"],
    "--name",
    "keys-high",
  );
  const [lowId, highId] = [await pendingOf(low), await pendingOf(high)];
  const person = await signedIn(daemon);
  const { page } = person;
  await page.keyboard.press("g");
  await page.keyboard.press("c");
  await page.waitForSelector(cardOf(lowId));
  // A letter without a card in focus does nothing.
  await page.keyboard.press("a");
  const focused = () => page.evaluate(() => document.activeElement?.dataset?.id ?? null);
  for (let n = 0; n < 30 && (await focused()) !== highId; n += 1) await page.keyboard.press("j");
  assert.equal(await focused(), highId);
  // Nothing is decided before it is there to be seen.
  await page.waitForSelector(`${cardOf(highId)} .actions`);
  await page.keyboard.press("a");
  await waitText(page, `${cardOf(highId)} button.hold`, "press again");
  assert.equal((await daemon.json("clearances", highId)).status, "pending");
  await page.keyboard.press("a");
  await page.waitForSelector(`${cardOf(highId)}.settled`);
  for (let n = 0; n < 30 && (await focused()) !== lowId; n += 1) await page.keyboard.press("j");
  await page.keyboard.press("r");
  await page.waitForSelector("dialog[open] #reason");
  await page.keyboard.type("d is a letter here");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForSelector(`${cardOf(lowId)}.settled`);
  assert.equal((await daemon.json("clearances", lowId)).reason, "d is a letter here");
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open] dl.keys");
  await page.keyboard.press("Escape");
  await well(person);
});

test("the way past the menu stays on the page, and who is on a row stays there when it moves", async () => {
  const session = await daemon.run(["serve"], "--name", "moves");
  await daemon.run(["serve"], "--name", "newer");
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, `#/s/${session}`, ".session-head");
  await page.focus(".skip");
  await page.keyboard.press("Enter");
  assert.deepEqual(await page.evaluate(() => [location.hash, document.activeElement.id]), [`#/s/${session}`, "main"]);
  await go(page, "#/", `a.session[href="#/s/${session}"]`);
  await page.focus(`a.session[href="#/s/${session}"]`);
  const place = () => page.$$eval("a.session", (all) => all.indexOf(document.activeElement));
  const before = await place();
  await daemon.cli("send", session, JSON.stringify([clearance(1, { title: "Up", file_path: "a" }), "answer:1"]));
  await waitText(page, "a.session.waiting .name", "moves");
  await until("the row to move with the focus on it", async () => (await place()) < before && (await place()) >= 0);
  await daemon.cli("kill", session);
  await well(person);
});

test("the daemon is killed and started again with the page open", async () => {
  let own = await Daemon.start();
  try {
    const session = await own.run(["status:before", "serve"], "--name", "survivor");
    const [person, other] = [await signedIn(own), await signedIn(own)];
    await go(person.page, `#/s/${session}`);
    await waitText(person.page, ".item.message", "before");
    await person.page.evaluate(() => (window.sameDocument = true));
    await own.end("SIGKILL");
    await person.page.waitForSelector(".banner:not([hidden])");
    assert.match(await text(person.page, ".banner"), /Offline/);
    // A page whose files were not fetched yet comes with the daemon.
    await go(other.page, "#/charts");
    assert.match(await text(other.page, "main"), /loads when the daemon can be reached again/);
    own = await Daemon.start({ dir: own.dir });
    await other.page.waitForSelector(".chart");
    await other.context.close();
    await own.cli("send", session, '["status:after"]');
    await person.page.waitForSelector("html[data-connection=live]");
    await waitText(person.page, ".item.message", "after");
    assert.equal(await person.page.$eval(".banner", (banner) => banner.hidden), true);
    assert.equal(await person.page.evaluate(() => window.sameDocument), true, "without a reload");
    const seqs = await person.page.$$eval(".item.message", (all) => all.map((each) => each.textContent));
    assert.equal(seqs.filter((each) => each.includes("before")).length, 1, "and nothing twice");
    assert.deepEqual(
      person.trouble.filter((each) => !/ERR_|Failed to load|network error/i.test(each)),
      [],
    );
    await person.context.close();
  } finally {
    await own.close();
  }
});

test("a log that was trimmed below where we are is loaded anew", async () => {
  const session = await daemon.run(["status:kept", "serve"], "--name", "trimmed");
  const person = await visitor();
  const { page } = person;
  await page.setRequestInterception(true);
  let refusals = 0;
  page.on("request", (request) => {
    const first = request.url().includes("/events?after=") && refusals === 0;
    if (!first) return request.continue();
    refusals += 1;
    request.respond({
      status: 410,
      contentType: "application/json",
      body: '{"error":{"code":"trimmed","message":"gone"}}',
    });
  });
  await page.goto(await daemon.cli("console"));
  await page.waitForSelector("html[data-connection=live]");
  await waitText(page, "a.session .name", "trimmed");
  assert.equal(refusals, 1);
  await daemon.cli("kill", session);
  await waitText(page, ".tab", "Ended");
  await well(person, { except: /410/ });
});

test("after a log that was trimmed, the timeline has no gap", async () => {
  let own = await Daemon.start();
  try {
    const session = await own.run(["status:before", "serve"]);
    const person = await visitor();
    const { page } = person;
    await page.setRequestInterception(true);
    let told;
    const ready = new Promise((resolve) => (told = resolve));
    let [armed, refusals] = [false, 0];
    page.on("request", async (request) => {
      if (!armed || refusals || !request.url().includes("/events?after=")) return request.continue();
      refusals += 1;
      await ready;
      await request.respond({
        status: 410,
        contentType: "application/json",
        body: '{"error":{"code":"trimmed","message":"gone"}}',
      });
    });
    await page.goto(await own.cli("console"));
    await page.waitForSelector("html[data-connection=live]");
    await go(page, `#/s/${session}`);
    await waitText(page, ".item.message", "before");
    armed = true;
    await own.end("SIGKILL");
    own = await Daemon.start({ dir: own.dir });
    await own.cli("send", session, '["status:meanwhile"]');
    await until("the word", async () => (await own.cli("logs", session)).includes("meanwhile"));
    told();
    await waitText(page, ".item.message", "meanwhile");
    assert.equal(refusals, 1);
    await person.context.close();
  } finally {
    await own.close();
  }
});

const EVIL = [
  "<script>window.hacked = 1</script>",
  "<img src=x onerror='window.hacked=2'>",
  "[click](javascript:window.hacked=3)",
  "<svg onload=window.hacked=4>",
  "\u001b]8;;http://evil.example\u0007link\u001b]8;;\u0007 \u001b[31mred",
  "a\u202egnp.exe \u200bzero",
  "![x](http://evil.example/pixel.png)",
  "[ok](https://evil.example/page)",
  "`</code><script>window.hacked=5</script>`",
  "```html\n<script>window.hacked=6</script>\n```",
  "constructor __proto__ {{7*7}} ${window.hacked=7}",
];

test("a hostile agent executes nothing and fetches nothing", async () => {
  const evil = EVIL.join("\n\n");
  const acp = (update) => `raw:${JSON.stringify({ method: "update", params: { update } })}`;
  const session = await daemon.run([
    `status:${evil}`,
    "flood:1:300000",
    acp({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: evil } }),
    `heartbeat:${JSON.stringify([{ label: evil, status: evil }])}`,
    `raw:${evil}`,
    `stderr:${evil.replaceAll("\n", " ")}`,
    clearance(evil.slice(0, 40), {
      title: evil,
      description: evil,
      file_path: `${evil}.rs`,
      command: evil,
      tool: evil,
      diff: `--- a/<script>\n+++ b/<script>\n@@ -1 +1 @@\n-${EVIL[0]}\n+${EVIL[1]}\u202e\n`,
      risk_level: evil,
    }),
    `question:q:${evil}`,
    "serve",
  ]);
  const id = await pendingOf(session);
  const person = await signedIn(daemon);
  const { page } = person;
  for (const hash of ["#/", "#/clearances", `#/s/${session}`, "#/audit", "#/charts", "#/policy"]) {
    await go(page, hash);
    await page.waitForNetworkIdle({ concurrency: 1 });
    assert.equal(await page.evaluate(() => window.hacked ?? null), null, hash);
  }
  await go(page, "#/clearances", wholeCard(id));
  const shown = await text(page, cardOf(id));
  assert.ok(
    shown.includes("<U+202E>") && shown.includes("<U+001B>") && shown.includes("<script>"),
    shown.slice(0, 300),
  );
  assert.equal(
    await page.$$eval("main script, main img, main iframe, main a[href^=javascript]", (all) => all.length),
    0,
  );
  // A link that leads somewhere says where, and asks first.
  await press(page, "https://evil.example/page", cardOf(id));
  await waitText(page, "dialog[open]", "https://evil.example/page");
  await press(page, "Cancel", "dialog");
  await daemon.cli("kill", session);
  await well(person);
});

test("an ACP agent: thoughts are folded, tools have a state, and nothing odd stops the timeline", async () => {
  const session = await daemon.cli("run", "--workspace", daemon.workspace, "--protocol", "acp", "--", acpFixture);
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, `#/s/${session}`, "#prompt");
  const send = (...steps) => daemon.cli("send", session, JSON.stringify(steps));
  const update = (update) => `update:${JSON.stringify(update)}`;
  const odd = { toString: 1, valueOf: 1 };
  await send(
    "think:quietly",
    "say:**aloud**",
    "tool:t:run:make",
    "plan:one=completed,two=in_progress",
    "tool-update:t:completed",
    "mode:plan",
    update({
      sessionUpdate: "tool_call",
      toolCallId: "o",
      title: odd,
      status: odd,
      content: [{ type: "diff", path: odd }],
    }),
    update({ sessionUpdate: "plan", entries: [{ content: odd, status: "constructor" }] }),
    update({ sessionUpdate: "constructor", x: "not for people" }),
    "notify:_auth/status_update:{}",
    "title:<img src=x onerror='window.hacked=1'>",
    "say:all of it",
  );
  await waitText(page, ".item.message", "all of it");
  assert.equal(await page.$eval(".item.thought details", (details) => details.open), false);
  assert.equal(await text(page, ".item.message strong"), "aloud");
  assert.match(await text(page, ".item.tool"), /done execute .*make/);
  assert.match(await text(page, ".item.plan"), /✓one.*▸two/);
  await waitText(page, ".item.fact", "Mode: plan");
  await waitText(page, ".item.fact", "<img src=x");
  assert.doesNotMatch(await text(page, ".timeline"), /native code/);
  const facts = await page.$$eval(".item.fact", (all) => all.map((item) => item.textContent).join("\n"));
  assert.doesNotMatch(facts, /not for people|constructor|_auth|[{"]x/, "no raw JSON");
  assert.equal(await page.evaluate(() => window.hacked ?? null), null);
  // A line of many megabytes is one for everybody who looks.
  await page.evaluate(() => {
    window.longest = 0;
    let last = performance.now();
    const look = () => {
      window.longest = Math.max(window.longest, performance.now() - last);
      last = performance.now();
      setTimeout(look, 0);
    };
    look();
  });
  await send("long:30000000", "tool:end:run:true", "say:after it");
  await until("what came after it", () =>
    page.$$eval(".item.message", (all) => all.at(-1).innerText.includes("after it")),
  );
  const longest = await page.evaluate(() => window.longest);
  assert.ok(longest < 3000, `${longest} ms without an answer`);
  await waitText(page, ".item.message button", "of 29,99");
  await daemon.cli("kill", session);
  await well(person);
});

test("a failure comes first in the fleet and counts in the title, until an operator has its page open", async () => {
  const options = ["--no-wait", "--workspace", daemon.workspace, "--name", "broken", "--protocol", "acp"];
  const session = await daemon.cli("run", ...options, "fail:auth", "--", acpFixture);
  const failed = async () => (await daemon.json("show", session)).failed;
  await until("the failure", failed);
  const viewer = await withRole(daemon, "viewer");
  await waitText(viewer.page, ".fleet li:first-child .session.failed", "broken");
  await waitText(viewer.page, ".fleet .session.failed .phase", "failed");
  await go(viewer.page, `#/s/${session}`, ".failure:not([hidden])");
  assert.ok(await failed(), "a viewer's look does not take it from those who can act");
  await well(viewer);
  const person = await signedIn(daemon);
  const { page } = person;
  const before = Number(/^\((\d+)\)/.exec(await page.title())[1]);
  await go(page, `#/s/${session}`, ".failure:not([hidden])");
  await until("somebody to have seen it", async () => !(await failed()));
  assert.match(
    await text(page, ".failure"),
    /needs a login.*What to do: log in.*intercom stop broken && intercom resume/,
  );
  await page.waitForFunction((count) => !document.title.startsWith(`(${count})`), {}, before);
  await go(page, "#/");
  assert.equal(await page.$$eval(".fleet .session.failed", (all) => all.length), 0);
  await daemon.cli("kill", session);
  await well(person);
});

test("a viewer sees and cannot decide", async () => {
  const session = await daemon.run([
    clearance(1, { title: "Not for viewers", command: "deploy --password=hunter2hunter2", risk_level: "low" }),
    "serve",
  ]);
  const id = await pendingOf(session);
  const person = await withRole(daemon, "viewer");
  const { page } = person;
  await go(page, `#/s/${session}`, wholeCard(id));
  assert.equal(await page.$$eval(`${cardOf(id)} .actions`, (all) => all.length), 0);
  assert.match(await text(page, cardOf(id)), /needs the role approver/);
  assert.ok(!(await text(page, "main")).includes("hunter2"), "secrets are hidden");
  assert.equal(await page.$$eval(".tools button", (all) => all.length), 0);
  assert.equal(await page.$eval(".composer", (composer) => composer.hidden), true);
  const status = await page.evaluate(
    async (clearance_) =>
      (
        await fetch(`/api/v1/clearances/${clearance_}/decision`, {
          method: "POST",
          headers: { "x-intercom": "1" },
          body: '{"decision":"approve"}',
        })
      ).status,
    id,
  );
  assert.equal(status, 403);
  await go(page, "#/audit");
  assert.match(await text(page, "main"), /for admins/);
  await daemon.cli("kill", session);
  await well(person, { except: /403/ });
});

test("the queue of prompts is edited, reordered and taken back", async () => {
  const own = await Daemon.start({
    config: profile("slow", ["status:ready", "hang"], 'prompt_delivery = "heartbeat"'),
  });
  try {
    const session = await own.cli("run", "--agent", "slow", "--workspace", own.workspace);
    const person = await signedIn(own);
    const { page } = person;
    await go(page, `#/s/${session}`, "#prompt");
    const queue = () => page.$$eval(".queue li .clip", (all) => all.map((each) => each.textContent));
    for (const [n, words] of ["first", "second", "third"].entries()) {
      await page.type("#prompt", words);
      await page.keyboard.down("Control");
      await page.keyboard.press("Enter");
      await page.keyboard.up("Control");
      await until("the prompt to wait", async () => (await queue()).length === n + 1);
    }
    await page.click(".queue li:nth-child(3) [aria-label='Move up']");
    await until("the other order", async () => (await queue()).join() === "first,third,second");
    await page.click(".queue li:nth-child(1) .small");
    await page.waitForSelector("#words");
    await page.$eval("#words", (field) => (field.value = ""));
    await page.type("#words", "reworded");
    await press(page, "Save", "dialog");
    await until("the other words", async () => (await queue()).join() === "reworded,third,second");
    await page.click(".queue li:nth-child(2) [aria-label='Withdraw']");
    await until("it to go", async () => (await queue()).join() === "reworded,second");
    assert.deepEqual(person.trouble, []);
    await person.context.close();
  } finally {
    await own.close();
  }
});

test("always shows its rule, and the grant is revoked on the policy page", async () => {
  const session = await daemon.cli("run", "--agent", "coder", "--workspace", daemon.workspace);
  const id = await pendingOf(session);
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, "#/clearances", wholeCard(id));
  await press(page, "Always…", cardOf(id));
  await waitText(page, "dialog .rule", "cargo");
  await press(page, "Allow always", "dialog");
  await page.waitForSelector(`${cardOf(id)}.settled`);
  // It is stored a moment after the decision.
  await until("the grant", async () => (await daemon.json("policy", "grants")).items.length > 0);
  await go(page, "#/policy", "main table");
  await press(page, "Revoke…");
  await press(page, "Revoke", "dialog");
  await waitText(page, "td", "revoked");
  await press(page, "Try");
  await page.waitForSelector(".figures");
  await well(person);
});

test("other rules are tried, the audit is searched, a session has charts of its own, and others are signed out", async () => {
  const session = await daemon.run(
    [clearance(1, { title: "Ship it", command: "make ship", tool: "execute", risk_level: "low" }), "answer:1", "serve"],
    "--name",
    "shipper",
  );
  await daemon.cli("approve", await pendingOf(session));
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, "#/policy", "#rules");
  await page.$eval("#rules", (field) => (field.value = '[[rule]]\nthen = "deny"\ncommand = "make ship"\n'));
  await press(page, "Try");
  await waitText(page, "main td", "asked → deny");
  // A command that cannot be read is denied by every rule about commands, so other rows may be there, too.
  const rows = await page.$$eval("main tr:has(a[href*=ses_])", (found) => found.map((row) => row.textContent));
  const shipped = rows.filter((row) => row.includes("make ship"));
  assert.equal(shipped.length, 1, rows.join("\n"));
  assert.match(shipped[0], /medium.*make ship.*Ship it.*rule 1 denies it/);
  await page.$eval("#rules", (field) => (field.value = "[[rule]]\nthen = 7\n"));
  await press(page, "Try");
  await waitText(page, "main pre.trouble", "then");

  await page.setRequestInterception(true);
  let [held, release] = [null, null];
  const late = new Promise((resolve) => (release = resolve));
  page.on("request", async (request) => {
    if (request.url().includes("/audit?") && !held) {
      held = request.url();
      await late;
    }
    request.continue();
  });
  await go(page, "#/audit", "select[aria-label='Time range']");
  await until("the first question", () => held);
  await page.select("select[aria-label='Time range']", "");
  await waitText(page, "table.audit td", "clearance.decided");
  const numbers = () =>
    page.$$eval("table.audit tbody tr", (all) => all.map((row) => Number(row.cells[0].textContent)));
  const before = await numbers();
  const answered = page.waitForResponse((response) => response.url() === held);
  release();
  await answered;
  await page.waitForNetworkIdle({ concurrency: 1 });
  assert.deepEqual(await numbers(), before, "what came too late changes nothing");
  assert.deepEqual(
    before,
    [...new Set(before)].sort((a, b) => b - a),
    "newest first, each once",
  );
  await page.type("input[type=search]", `clearance.decided ${session}`);
  await waitText(page, "main [role=status]", "1 of ");
  const row = await text(page, "table.audit tbody");
  assert.match(row, /clearance\.decidedperson \S+ \(unix socket\)shipperapproved, make ship “Ship it”/);
  assert.doesNotMatch(row, /clr_|title |\[/, "no keys, no ids, no raw JSON");
  await press(page, "Verify");
  await waitText(page, "main [role=status]", "Intact: ");

  await go(page, "#/charts", ".chart");
  await page.select("select[aria-label=Session]", session);
  await waitText(page, ".figure:has(strong)", "1decided by people");
  await page.click(".chart:last-child summary");
  await page.select("select[aria-label='Time range']", "1");
  await page.waitForFunction(() => document.querySelector(".chart:last-child details[open] tbody tr"));

  const other = await withRole(daemon, "viewer");
  await go(page, "#/settings", "table");
  await page.evaluate(() => {
    const row = [...document.querySelectorAll("tbody tr")].find((each) => each.cells[1].textContent === "viewer");
    row.querySelector("button").click();
  });
  await press(page, "Sign out", "dialog[open]");
  await other.page.waitForSelector("#token");
  await daemon.cli("kill", session);
  await well(person, { except: /422/ });
  await well(other, { except: /401/ });
});

test("the plan of a session opens in the fleet", async () => {
  await daemon.run(["heartbeat:first=completed,second=in_progress,third=pending", "serve"], "--name", "planner");
  const person = await signedIn(daemon);
  const { page } = person;
  await waitText(page, ".fleet .steps .step", "1/3 second");
  await page.evaluate(() => {
    const row = [...document.querySelectorAll(".fleet li")].find((li) => li.textContent.includes("planner"));
    row.querySelector("summary").click();
  });
  await waitText(page, ".fleet .steps[open] .checklist li.now", "second");
  assert.match(await text(page, ".fleet .steps[open] .checklist"), /first.*second.*third/);
  await well(person);
});

test("an agent is nudged, snoozed, interrupted, looked into, stopped and killed from its page", async () => {
  const session = await daemon.run(["stderr:a word on stderr", "status:hello", "serve"], "--name", "steered");
  const person = await signedIn(daemon);
  const { page, context } = person;
  await context.overridePermissions(daemon.url, ["clipboard-read", "clipboard-write", "clipboard-sanitized-write"]);
  await go(page, `#/s/${session}`);
  await waitText(page, ".item.message", "hello");
  const logged = (kind) =>
    until(kind, async () =>
      (await daemon.cli("logs", session, "--json"))
        .split("\n")
        .map((line) => JSON.parse(line))
        .find((event) => event.kind === kind),
    );
  await press(page, "Nudge…");
  await page.type("dialog[open] #words", "are you there?");
  await press(page, "Nudge", "dialog[open]");
  assert.equal((await logged("nudge")).data.message, "are you there?");
  await press(page, "Snooze…");
  await press(page, "Snooze", "dialog[open]");
  await logged("stall.snoozed");
  await waitText(page, ".side .facts", "until");
  await waitText(page, ".session-head .phase", "working");
  const button = await page.waitForSelector(".tools .danger");
  await press(page, "Interrupt…");
  await press(page, "Interrupt", "dialog[open]");
  await logged("interrupt");
  await waitText(page, ".session-head .phase", "idle");
  assert.equal(await button.evaluate((each) => each.isConnected), true, "no button is replaced under a finger");
  // The raw event, and its copy.
  await page.$$eval(".item.message .rawbutton", (all) => all[0].click());
  await waitText(page, "dialog[open] pre.raw", '"hello"');
  await press(page, "Copy", "dialog[open]");
  await until("the copy", async () => (await page.evaluate(() => navigator.clipboard.readText())).includes('"hello"'));
  await page.evaluate(() => (navigator.clipboard.writeText = () => Promise.reject(new Error("no"))));
  await press(page, "Copy", "dialog[open]");
  await waitText(page, ".toast.error", "does not allow copying");
  await press(page, "Close", "dialog[open]");
  await waitText(page, ".side .stderr", "a word on stderr");
  // The log, as it would be saved.
  const lines = await page.evaluate(async () => {
    const link = document.querySelector("a[download]");
    return (await (await fetch(link.href)).text()).trim().split("\n").length;
  });
  assert.ok(lines >= (await daemon.cli("logs", session, "--json")).split("\n").length - 1);
  // Neither stops without being asked twice.
  await press(page, "Kill…");
  await press(page, "Cancel", "dialog[open]");
  assert.notEqual((await daemon.json("show", session)).phase, "ended");
  await press(page, "Stop…");
  await press(page, "Stop", "dialog[open]");
  await waitText(page, ".session-head .phase", "ended");
  await press(page, "Resume");
  await waitText(page, ".toast", "Resumed");
  await until("it to run", async () => (await daemon.json("show", session)).phase !== "ended");
  await press(page, "Kill…");
  await press(page, "Kill", "dialog[open]");
  await waitText(page, ".session-head .phase", "ended");
  await well(person);
});

test("a diff is shown side by side, and what did not change is folded", async () => {
  const same = Array.from({ length: 60 }, (_, n) => ` line ${n}`).join("\n");
  const diff = `--- a/a.rs\n+++ b/a.rs\n@@ -1,61 +1,61 @@\n-    one();\n+    two();\n${same}\n`;
  const session = await daemon.run([
    clearance(1, { title: "Fold", file_path: "a.rs", diff, risk_level: "low" }),
    "answer:1",
    "serve",
  ]);
  const id = await pendingOf(session);
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, "#/clearances", wholeCard(id));
  const count = () => page.$$eval(`${cardOf(id)} tr`, (rows) => rows.length);
  const before = await count();
  assert.ok(before < 40, `${before} rows`);
  await page.$eval(`${cardOf(id)} .fold button`, (button) => button.click());
  assert.ok((await count()) > before);
  await press(page, "Side by side", cardOf(id));
  await waitText(page, `${cardOf(id)} button`, "Unified");
  assert.ok(await page.$$eval(`${cardOf(id)} tr`, (rows) => rows.some((row) => row.cells.length === 4)));
  await press(page, "Deny", cardOf(id));
  await page.waitForSelector(`${cardOf(id)}.settled`);
  await well(person);
});

test("a card of any length is short at first, and says what it leaves out", async () => {
  const session = await daemon.run([
    clearance(1, {
      title: "Long",
      file_path: "a.rs",
      description: "- one more\n".repeat(5000),
      diff: "@@ -1 +1 @@\n-a\n+b\n".repeat(3000),
      risk_level: "low",
    }),
    "answer:1",
    clearance(2, { title: "Lines", file_path: "b.rs", diff: `@@ -1,9000 +1,9000 @@\n${"-a\n+b\n".repeat(9000)}` }),
    "serve",
  ]);
  const id = await pendingOf(session);
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, "#/clearances", wholeCard(id));
  await waitText(page, `${cardOf(id)} .description button`, "Show all 55,000 characters");
  assert.ok((await page.$$eval(`${cardOf(id)} .description li`, (all) => all.length)) < 500);
  const hunks = () => page.$$eval(`${cardOf(id)} .hunk`, (all) => all.length);
  assert.equal(await hunks(), 200);
  await press(page, "Show more (2,800 hunks left)", cardOf(id));
  assert.equal(await hunks(), 400);
  await press(page, "Show all 55,000 characters", cardOf(id));
  await waitText(page, `${cardOf(id)} .description pre`, "one more");
  await press(page, "Allow once", cardOf(id));
  await page.waitForSelector(`${cardOf(id)}.settled`);
  const next = cardOf(await pendingOf(session));
  await (await page.waitForSelector(`${next} .hunk summary`)).click();
  await waitText(page, `${next} .fold button`, "Show more (16,000 lines left)");
  assert.equal(await page.$$eval(`${next} tr`, (all) => all.length), 2001);
  await press(page, "Show more (16,000 lines left)", next);
  assert.equal(await page.$$eval(`${next} tr`, (all) => all.length), 4001);
  await daemon.cli("kill", session);
  await well(person);
});

test("what waits is told in the title, on the icon, and by the browser to those who want that", async () => {
  const person = await visitor();
  const { page, context } = person;
  await context.overridePermissions(daemon.url, ["notifications"]);
  await page.evaluateOnNewDocument(() => {
    window.told = [];
    window.Notification = class {
      static permission = "granted";
      static requestPermission = async () => "granted";
      constructor(title) {
        window.told.push(title);
      }
      close() {}
    };
    Object.defineProperty(document, "hidden", { get: () => window.away === true });
  });
  await page.goto(await daemon.cli("console"));
  await page.waitForSelector("html[data-connection=live]");
  await go(page, "#/settings", "main input[type=checkbox]");
  await page.click("main input[type=checkbox]");
  await page.evaluate(() => (window.away = true));
  const before = Number(/^\((\d+)\)/.exec(await page.title())?.[1] ?? 0);
  const session = await daemon.run(["question:1:Which way?", "answer:1", "serve"]);
  await page.waitForFunction((count) => document.title.startsWith(`(${count})`), {}, before + 1);
  assert.match(await page.$eval("link[rel=icon]", (link) => link.href), /^data:image\/png/);
  await page.waitForFunction(() => window.told.includes("Question: Which way?"));
  await daemon.cli("kill", session);
  await page.waitForFunction((count) => !document.title.startsWith(`(${count})`), {}, before + 1);
  await well(person);
});

test("thousands of events scroll, with few of them in the page", async () => {
  const count = Number(process.env.INTERCOM_TEST_EVENTS ?? 10000);
  const session = await daemon.run([`flood:${count}`, "status:the end", "serve"], "--name", "loud");
  const person = await signedIn(daemon);
  const { page } = person;
  await daemon.cli("wait", session, "--for", "idle", "--timeout", "1s").catch(() => {});
  await go(page, `#/s/${session}`, ".item");
  await waitText(page, ".item", "the end");
  const result = await page.evaluate(async (wanted) => {
    const list = document.querySelector(".timeline");
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const times = [];
    let [most, frames] = [0, 0];
    const begin = performance.now();
    const known = () => Number(document.querySelector(".item")?.getAttribute("aria-setsize"));
    while (performance.now() - begin < 120000 && (known() < wanted || list.scrollTop > 0)) {
      const before = performance.now();
      list.scrollTop = Math.max(0, list.scrollTop - 3000);
      await frame();
      times.push(performance.now() - before);
      most = Math.max(most, document.querySelectorAll(".item").length);
      frames += 1;
    }
    times.sort((a, b) => a - b);
    // As fast as a hand moves a wheel, through what is there by now.
    const read = [];
    for (let n = 0; n < 300; n += 1) {
      const before = performance.now();
      list.scrollTop += 120;
      await frame();
      read.push(performance.now() - before);
    }
    read.sort((a, b) => a - b);
    return {
      reading: Math.round(read[Math.floor(read.length * 0.95)]),
      slowest: Math.round(times[times.length - 1]),
      p99: Math.round(times[Math.floor(times.length * 0.99)]),
      most,
      frames,
      took: performance.now() - begin,
      top: known(),
    };
  }, count);
  console.log(`timeline of ${count}: ${JSON.stringify(result)}`);
  assert.ok(result.reading < 50, `${result.reading} ms for one picture while reading`);
  assert.ok(result.most < 300, `${result.most} items at once`);
  assert.ok(result.p99 < 200 && result.slowest < 1000, `${result.p99} and ${result.slowest} ms for one picture`);
  assert.ok(Number(result.top) >= count, `${result.top} of ${count} are there`);
  await daemon.cli("kill", session);
  await well(person);
});

test("every page fits a phone", async () => {
  const session = await daemon.run([
    clearance(1, {
      title: "Edit a file with a rather long name",
      file_path: "src/".repeat(20) + "a.rs",
      diff: DIFF,
      risk_level: "medium",
    }),
    "serve",
  ]);
  const id = await pendingOf(session);
  const person = await signedIn(daemon, { width: 360, height: 740 });
  const { page } = person;
  for (const hash of ["#/", "#/clearances", `#/s/${session}`, "#/policy", "#/audit", "#/charts", "#/settings"]) {
    await go(page, hash);
    await page.waitForNetworkIdle({ concurrency: 1 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 360, `${hash} is ${wide} pixels wide`);
  }
  await go(page, "#/clearances", wholeCard(id));
  // What waits is one press away, however far one has read.
  await go(page, `#/s/${session}`, wholeCard(id));
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  const jump = await page.waitForSelector(".jump", { visible: true });
  assert.equal(await jump.evaluate((button) => button.textContent), "1 request waiting");
  await jump.click();
  assert.equal(await page.evaluate(() => document.activeElement.dataset.id), id);
  await page.waitForFunction(() => document.querySelector(".jump").hidden);
  await go(page, "#/clearances", wholeCard(id));
  const small = await page.$$eval(`${cardOf(id)} .actions button`, (all) =>
    all.map((each) => each.getBoundingClientRect().height).filter((height) => height < 40),
  );
  assert.deepEqual(small, [], "buttons for a thumb");
  await daemon.cli("kill", session);
  await well(person);
});

/** Starts sessions as the admin who is signed in here; without a process each, so that they cost nothing. */
const startMany = (page, start, count) =>
  page.evaluate(
    async (body, wanted) => {
      const headers = { "x-intercom": "1", "content-type": "application/json" };
      for (let n = 0; n < wanted; n += 6)
        await Promise.all(
          Array.from({ length: Math.min(6, wanted - n) }, async (_, k) => {
            const name = `${body.agent}-${String(n + k).padStart(3, "0")}`;
            const answer = await fetch("/api/v1/sessions", {
              method: "POST",
              headers,
              body: JSON.stringify({ name, defer: true, ...body }),
            });
            if (!answer.ok) throw new Error(await answer.text());
          }),
        );
    },
    start,
    count,
  );

const SIZES = {
  desk: { width: 1280, height: 800 },
  tablet: { width: 820, height: 1180 },
  phone: { width: 390, height: 844 },
};
/** Many screens of change. */
const LONG_DIFF = `--- a/a.rs\n+++ b/a.rs\n${Array.from(
  { length: 12 },
  (_, n) => `@@ -${n * 50 + 1},30 +${n * 50 + 1},30 @@\n${"-    one();\n+    two();\n".repeat(30)}`,
).join("")}`;

/** Whether the first element that the selector finds can be pressed where it is, without scrolling. */
const atHand = (page, selector) =>
  page.$eval(selector, (element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    return top >= 0 && bottom <= innerHeight && element.contains(hit);
  });

for (const [name, size] of Object.entries(SIZES)) {
  test(`${name}: a page that fits has no scrollbar, and no toast is in the way`, async () => {
    const own = await Daemon.start();
    try {
      const session = await own.run(["status:hello", "serve"], "--name", "short");
      const person = await signedIn(own, size);
      const { page } = person;
      const pages = ["#/", "#/clearances", ...(name === "desk" ? [`#/s/${session}`] : [])];
      for (const hash of pages) {
        await go(page, hash);
        await page.waitForNetworkIdle({ concurrency: 1 });
        const [long, high] = await page.evaluate(() => [document.documentElement.scrollHeight, innerHeight]);
        assert.ok(long <= high, `${hash} is ${long} of ${high} pixels long`);
      }
      await go(page, `#/s/${session}`, "#prompt");
      await waitText(page, ".item.message", "hello");
      assert.ok(await page.$eval(".timeline", (list) => list.scrollHeight <= list.clientHeight));
      await page.$eval(".composer .primary", (send) => send.scrollIntoView({ block: "center" }));
      await page.type("#prompt", "status:again");
      await press(page, "Nudge…");
      await press(page, "Nudge", "dialog[open]");
      await waitText(page, ".toast", "Nudged");
      assert.ok(await atHand(page, ".composer .primary"), "Send is covered");
      const [toast, send] = await page.$$eval(".toast, .composer .primary", (all) =>
        all.map((each) => each.getBoundingClientRect().toJSON()).sort((a, b) => a.top - b.top),
      );
      assert.ok(toast.bottom < send.top, "the toast is above");
      assert.deepEqual(person.trouble, []);
      await person.context.close();
    } finally {
      await own.close();
    }
  });

  test(`${name}: a long change keeps its buttons at hand`, async () => {
    const session = await daemon.run([
      clearance(1, { title: "Long change", file_path: "a.rs", diff: LONG_DIFF, risk_level: "low" }),
      "answer:1",
      "serve",
    ]);
    const id = await pendingOf(session);
    const person = await signedIn(daemon, size);
    const { page } = person;
    const allow = `${cardOf(id)} .actions .primary`;
    const scroller = name === "desk" ? ".side" : "html";
    const scroll = (share) => page.$eval(scroller, (each, part) => each.scrollTo(0, each.scrollHeight * part), share);
    await go(page, `#/s/${session}`, allow);
    const screens = await page.$eval(cardOf(id), (card) => card.offsetHeight / innerHeight);
    assert.ok(screens > 4, `${screens} screens`);
    // On a desk the card has a column of its own; elsewhere the buttons stay also while one reads the rest of the page.
    for (const share of name === "desk" ? [0, 0.3, 0.6] : [0, 0.3, 0.6, 1]) {
      await scroll(share);
      await until(`the buttons at ${share}`, () => atHand(page, allow));
    }
    await scroll(0.3);
    await until("its subject", () =>
      page.$eval(
        `${cardOf(id)} .subject`,
        (each) => each.offsetParent !== null && each.innerText.includes("a.rs +360 -360"),
      ),
    );
    // The end of the page can still be read and used.
    if (name !== "desk") {
      await page.$eval(".composer .primary", (send) => send.scrollIntoView({ block: "end" }));
      await scroll(1);
      const [send, bar] = await page.evaluate(
        (where) => [
          document.querySelector(".composer").getBoundingClientRect().bottom,
          document.querySelector(where).getBoundingClientRect().top,
        ],
        `${cardOf(id)} .foot`,
      );
      assert.ok(send <= bar, "the bar covers the end of the page");
    }
    await go(page, "#/clearances", allow);
    for (const top of [0, 600, 2000]) {
      await page.evaluate(
        (where, by) => scrollTo(0, scrollY + document.querySelector(where).getBoundingClientRect().top - 60 + by),
        cardOf(id),
        top,
      );
      await until(`the buttons at ${top}`, () => atHand(page, allow));
    }
    await page.click(allow);
    await page.waitForSelector(`${cardOf(id)}.settled`);
    await daemon.cli("kill", session);
    await well(person);
  });
}

test("what waits stands above what is settled, and a double click decides one of them", async () => {
  const ask = (n, more = {}) => clearance(n, { title: `Step ${n}`, file_path: `${n}`, risk_level: "low", ...more });
  const session = await daemon.run([ask(1), ask(2), "answer:1", "answer:2", ask(3), "answer:3", "serve"]);
  await until(
    "both",
    async () => (await daemon.json("clearances")).items.filter((each) => each.session === session).length === 2,
  );
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, `#/s/${session}`, ".card .actions");
  /** Titles from top to bottom, with a star for what is settled. */
  const order = () =>
    page.$$eval(".open .card", (all) =>
      all
        .sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)
        .map((card) => card.querySelector(".title").textContent + (card.matches(".settled") ? "*" : ""))
        .join(", "),
    );
  assert.equal(await order(), "Step 1, Step 2");
  const place = await page.$eval(".open .card .primary", (each) => each.getBoundingClientRect().toJSON());
  const [x, y] = [place.x + 20, place.y + 10];
  await page.mouse.click(x, y);
  await until("the next to be first", async () => (await order()) === "Step 2, Step 1*");
  assert.ok(await page.$eval(".open .card:not(.settled) .primary", (each) => each.offsetParent !== null));
  // The second half of a double click that began on the first.
  await page.mouse.click(x, y, { clickCount: 2 });
  await page.$eval(".open .card:not(.settled) .primary", (each) =>
    each.dispatchEvent(new MouseEvent("click", { bubbles: true, detail: 2 })),
  );
  assert.equal((await daemon.json("clearances")).items.filter((each) => each.session === session).length, 1);
  await press(page, "Allow once", ".open .card:not(.settled)");
  await until("the last to be first", async () => (await order()).startsWith("Step 3, "));
  assert.equal(await order(), "Step 3, Step 1*, Step 2*");
  await daemon.cli("kill", session);
  await well(person);
});

test("a decided clearance opens its change in the timeline", async () => {
  const session = await daemon.run([
    clearance(1, { title: "Edit a.rs", file_path: "a.rs", diff: DIFF, risk_level: "low" }),
    "answer:1",
    "serve",
  ]);
  await daemon.cli("approve", await pendingOf(session));
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, `#/s/${session}`, ".item.clearance");
  await waitText(page, ".item.clearance .settlement", "Allowed by");
  assert.equal(await page.$(".item.clearance .diff"), null);
  await page.click(".item.clearance .request summary");
  await page.waitForSelector(".item.clearance .diff");
  assert.match(await text(page, ".item.clearance .diff"), /one\(\);.*two\(\);/s);
  assert.match(await text(page, ".item.clearance .request"), /a\.rs/);
  await daemon.cli("kill", session);
  await well(person);
});

test("what a session has used is shown, and a prompt that waited stands where it left the queue", async () => {
  const session = await daemon.cli("run", "--workspace", daemon.workspace, "--protocol", "acp", "--", acpFixture);
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, `#/s/${session}`, "#prompt");
  const send = (...steps) => daemon.cli("send", session, JSON.stringify(steps));
  await send("say:the first begins", "usage:1200:200000:0.25", "permission::run:make", "say:the first ends");
  const id = await pendingOf(session);
  await send("say:the second begins");
  await waitText(page, ".queue li", "the second begins");
  await daemon.cli("approve", id);
  await waitText(page, ".item.message", "the second begins");
  const order = async () => {
    const items = await page.$$eval(".item", (all) =>
      all
        .sort((a, b) => Number(a.getAttribute("aria-posinset")) - Number(b.getAttribute("aria-posinset")))
        .map((each) => `${each.classList[1]} ${each.innerText.replaceAll("\n", " ")}`),
    );
    const at = (kind, words) => items.findIndex((each) => each.startsWith(kind) && each.includes(words));
    return [at("message", "the first ends"), at("prompt", "the second begins"), at("message", "the second begins")];
  };
  const [before, prompt, after_] = await order();
  assert.ok(0 <= before && before < prompt && prompt < after_, `${before} ${prompt} ${after_}`);
  // And so for somebody who comes later.
  await page.reload();
  await waitText(page, ".item.message", "the second begins");
  const [first, second, third] = await order();
  assert.ok(0 <= first && first < second && second < third, `${first} ${second} ${third}`);
  await waitText(page, ".session-head .why", "0.25 USD");
  assert.match(await text(page, ".side .facts"), /Used.*2 turns.*0\.25 USD/);
  await go(page, "#/", `a.session[href="#/s/${session}"]`);
  assert.match(await text(page, `a.session[href="#/s/${session}"] .place`), /0\.25 USD/);
  await daemon.cli("kill", session);
  await well(person);
});

test("always is offered where a rule can be made, for an hour at first", async () => {
  const without = await daemon.run([
    clearance(1, { title: "No profile", command: "make", tool: "execute", risk_level: "low" }),
    "serve",
  ]);
  const with_ = await daemon.cli("run", "--agent", "coder", "--workspace", daemon.workspace);
  const [no, yes] = [await pendingOf(without), await pendingOf(with_)];
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, "#/clearances", `${cardOf(no)} .actions`);
  const words = (id) => page.$$eval(`${cardOf(id)} .actions button`, (all) => all.map((each) => each.textContent));
  assert.deepEqual(await words(no), ["Allow once", "Deny", "Deny with reason…"]);
  await page.focus(cardOf(no));
  await page.keyboard.press("A");
  await waitText(page, ".toast", "No rule can be created: its agent has no profile");
  await page.waitForSelector(`${cardOf(yes)} .actions`);
  assert.deepEqual(await words(yes), ["Allow once", "Always…", "Deny", "Deny with reason…"]);
  await press(page, "Always…", cardOf(yes));
  await waitText(page, "dialog .rule", "cargo");
  assert.equal(await page.$eval("#lasts", (field) => field.selectedOptions[0].textContent), "for an hour");
  await press(page, "Allow always", "dialog");
  await page.waitForSelector(`${cardOf(yes)}.settled`);
  const grant = await until("the grant", async () =>
    (await daemon.json("policy", "grants")).items.find((each) => each.clearance === yes),
  );
  const lasts = Date.parse(grant.expires_at) - Date.parse(grant.created_at);
  assert.equal(Math.round(lasts / 60000), 60);
  await daemon.cli("policy", "revoke", grant.id);
  for (const session of [without, with_]) await daemon.cli("kill", session);
  await well(person);
});

test("nothing is decided before its change is there, and a change that cannot be fetched is fetched again", async () => {
  const session = await daemon.run([
    clearance(1, { title: "Edit a.rs", file_path: "a.rs", diff: DIFF, risk_level: "low" }),
    "answer:1",
    "serve",
  ]);
  const id = await pendingOf(session);
  const person = await visitor();
  const { page } = person;
  await page.setRequestInterception(true);
  let failures = 0;
  page.on("request", (request) => {
    if (!request.url().includes(`${id}/explanation`) || failures) return request.continue();
    failures += 1;
    request.abort();
  });
  await page.goto(await daemon.cli("console"));
  await page.waitForSelector("html[data-connection=live]");
  await go(page, "#/clearances", `${cardOf(id)} .trouble`);
  assert.match(await text(page, cardOf(id)), /could not be loaded/);
  assert.equal(await page.$(`${cardOf(id)} .actions`), null);
  await page.focus(cardOf(id));
  await page.keyboard.press("a");
  await press(page, "Try again", cardOf(id));
  await page.waitForSelector(`${cardOf(id)} .diff`);
  assert.equal((await daemon.json("clearances", id)).status, "pending");
  await press(page, "Allow once", cardOf(id));
  await page.waitForSelector(`${cardOf(id)}.settled`);
  await daemon.cli("kill", session);
  await well(person, { except: /ERR_FAILED/ });
});

test("a click on a button that has to be held says so", async () => {
  const session = await daemon.run([
    clearance(1, { title: "Risky", file_path: "a", risk_level: "high" }),
    "answer:1",
    clearance(2, { title: "Risky again", file_path: "b", risk_level: "high" }),
    "answer:2",
    "serve",
  ]);
  const id = await pendingOf(session);
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, `#/s/${session}`, `${cardOf(id)} button.hold`);
  const bubble = () => page.$eval(`${cardOf(id)} .bubble`, (each) => each.offsetParent !== null && each.innerText);
  assert.equal(await bubble(), false);
  await page.click(`${cardOf(id)} button.hold`);
  assert.match(await bubble(), /hold the button until/);
  assert.match(await text(page, "#announce"), /hold the button until/);
  assert.equal((await daemon.json("clearances", id)).status, "pending");
  await page.click(`${cardOf(id)} button.hold`, { delay: 1300 });
  await page.waitForSelector(`${cardOf(id)}.settled`);
  // Held at once, without a click before it.
  const next = cardOf(await pendingOf(session));
  await page.waitForSelector(`${next} button.hold`);
  await page.evaluate(() => document.activeElement.blur());
  await page.focus("main");
  await page.click(`${next} button.hold`, { delay: 1300 });
  await page.waitForSelector(`${next}.settled`);
  await daemon.cli("kill", session);
  await well(person);
});

test("back keeps the scroll, and filters are in the address", async () => {
  const own = await Daemon.start({
    config: `[limits]\nmax_sessions = 60\nmin_free_memory_mib = 0\n${profile("many", ["serve"])}`,
  });
  try {
    const person = await signedIn(own, { width: 1280, height: 500 });
    const { page } = person;
    await startMany(page, { agent: "many", workspace: own.workspace }, 40);
    await page.waitForFunction(() => document.querySelectorAll("a.session").length === 40);
    await press(page, "Idle40");
    await page.select("select[aria-label=Sort]", "name");
    await page.type("input[type=search]", "many");
    assert.equal(await page.evaluate(() => location.hash), "#/?show=idle&search=many&sort=name");
    const wanted =
      "a.session[href='#/s/" + (await page.$$eval("a.session", (all) => all[25].getAttribute("href").slice(4))) + "']";
    await page.$eval(wanted, (row) => row.scrollIntoView({ block: "center" }));
    const top = () => page.$eval(wanted, (row) => Math.round(row.getBoundingClientRect().top));
    const frames = () =>
      page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    // Rows that come into view take their real height: the place counts once it rests.
    await until("the row to rest", async () => {
      const now = await top();
      await frames();
      return now === (await top());
    });
    const before = await top();
    for (const back of [() => page.goBack(), () => page.click(".back")]) {
      await page.click(wanted);
      await page.waitForSelector(".session-head");
      assert.equal(await page.evaluate(() => scrollY), 0);
      await back();
      await page.waitForSelector(wanted);
      await until("the row where it was", async () => Math.abs((await top()) - before) <= 2);
      assert.equal(await page.$eval("input[type=search]", (field) => field.value), "many");
      assert.equal(await page.$eval(".tab[aria-pressed=true]", (tab) => tab.textContent), "Idle40");
    }
    // The address is enough for somebody else.
    await page.reload();
    await page.waitForSelector(wanted);
    assert.equal(await page.$eval(".tab[aria-pressed=true]", (tab) => tab.textContent), "Idle40");
    assert.equal(await page.$eval("select[aria-label=Sort]", (field) => field.value), "name");
    await go(page, "#/charts?hours=168", ".chart");
    assert.equal(await page.$eval("select[aria-label='Time range']", (field) => field.value), "168");
    await page.select("select[aria-label='Time range']", "1");
    assert.equal(await page.evaluate(() => location.hash), "#/charts?hours=1");
    await go(page, "#/audit?days=1&search=token", "table.audit");
    assert.equal(await page.$eval("input[type=search]", (field) => field.value), "token");
    await page.select("select[aria-label='Time range']", "");
    assert.equal(await page.evaluate(() => location.hash), "#/audit?days=&search=token");
    assert.deepEqual(person.trouble, []);
    await person.context.close();
  } finally {
    await own.close();
  }
});

const OFFERED = {
  viewer: { menu: "Fleet Clearances Policy Charts Settings", tools: "Log", ended: "Log", cards: "", policy: "" },
  operator: {
    menu: "Fleet Clearances Policy Charts Settings",
    tools: "Nudge… Interrupt… Snooze… Stop… Log",
    ended: "Log",
    cards: "Continue Refine… Stop",
    policy: "",
  },
  approver: {
    menu: "Fleet Clearances Policy Charts Settings",
    tools: "Nudge… Interrupt… Snooze… Stop… Log",
    ended: "Log",
    cards: "Allow once Always… Deny Deny with reason… Continue Refine… Stop",
    policy: "Revoke… Try",
  },
  admin: {
    menu: "Fleet Clearances Policy Audit Charts Settings",
    tools: "Nudge… Interrupt… Snooze… Stop… Kill… Log",
    ended: "Resume Log",
    cards: "Allow once Always… Deny Deny with reason… Continue Refine… Stop",
    policy: "Revoke… Try",
  },
};

test("each role is offered what it may do, and nothing else", async () => {
  const asks = (n, command) => clearance(n, { title: `Ask ${n}`, command, tool: "execute", risk_level: "low" });
  const own = await Daemon.start({
    config:
      profile("coder", [asks(1, "cargo test"), "answer:1", asks(2, "cargo build"), "question:q:How?", "serve"]) +
      '[[rule]]\nthen = "ask"\ncommand = "deploy"\nask = ["bea"]\n',
  });
  try {
    const session = await own.cli("run", "--agent", "coder", "--workspace", own.workspace);
    const pending = () => until("a clearance", async () => (await own.json("clearances")).items[0]?.id);
    await own.cli("approve", await pending(), "--always", "--yes");
    const id = await until(
      "the next",
      async () => (await own.json("clearances")).items.find((each) => each.title === "Ask 2")?.id,
    );
    const over = await own.run(["exit:0"]);
    await until("it to end", async () => (await own.json("show", over)).phase === "ended");
    for (const [role, offered] of Object.entries(OFFERED)) {
      const person = await withRole(own, role);
      const { page } = person;
      const words = (selector) =>
        page.$$eval(selector, (all) =>
          all
            .filter((each) => each.offsetParent !== null)
            .map((each) => each.innerText.trim().split("\n")[0])
            .join(" "),
        );
      assert.equal(await words(".sidebar .nav"), offered.menu, role);
      await go(page, `#/s/${session}`, wholeCard(id));
      await page.waitForSelector(".card.question");
      assert.equal(await words(".tools button, .tools a"), offered.tools, role);
      assert.equal(await words(".card .actions button"), offered.cards, role);
      assert.equal(await page.$eval("#prompt", (field) => field.offsetParent !== null), role !== "viewer", role);
      await page.keyboard.press("?");
      await page.waitForSelector("dialog[open] .keys");
      const keys = await text(page, "dialog[open] .keys");
      assert.deepEqual(
        ["allow once", "nudge", "write to", "audit"].map((each) => keys.includes(each)),
        ["approver", "operator", "operator", "admin"].map(
          (least) => Object.keys(OFFERED).indexOf(role) >= Object.keys(OFFERED).indexOf(least),
        ),
        role,
      );
      await page.keyboard.press("Escape");
      await go(page, `#/s/${over}`, ".tools a");
      assert.equal(await words(".tools button, .tools a"), offered.ended, role);
      await go(page, "#/policy", "main table");
      await waitText(page, "main .panel", "cargo");
      assert.equal(await words("main .panel button"), offered.policy, role);
      await go(page, "#/settings", "main table");
      assert.deepEqual(person.trouble, [], role);
      await person.context.close();
    }
    // A request that a rule addresses to somebody is not offered to others to allow.
    const deploy = await own.run([clearance(1, { title: "Ship", command: "deploy", tool: "execute" }), "serve"]);
    await until("it", async () => (await own.json("clearances")).items.some((each) => each.session === deploy));
    const ana = await withRole(own, "approver");
    await go(ana.page, `#/s/${deploy}`, ".card .actions");
    await waitText(ana.page, ".card .actions", "You cannot approve this: only bea may approve this");
    assert.deepEqual(await ana.page.$$eval(".card .actions button", (all) => all.map((each) => each.textContent)), [
      "Deny",
      "Deny with reason…",
    ]);
    assert.deepEqual(ana.trouble, []);
    await ana.context.close();
  } finally {
    await own.close();
  }
});

test("back in a session's log is where one has read", async () => {
  const session = await daemon.run(["flood:3000", "status:the end", "serve"], "--name", "read");
  const person = await signedIn(daemon);
  const { page } = person;
  await go(page, `#/s/${session}`);
  await waitText(page, ".item", "the end");
  await page.hover(".timeline");
  for (let n = 0; n < 12; n += 1) await page.mouse.wheel({ deltaY: -4000 });
  /** The first line that can be seen, and where. */
  const reading = () =>
    page.evaluate(() => {
      const edge = document.querySelector(".timeline").getBoundingClientRect().top;
      const items = [...document.querySelectorAll(".item")].map((each) => [
        each.innerText,
        each.getBoundingClientRect(),
      ]);
      const [words, box] = items.sort((a, b) => a[1].top - b[1].top).find(([, each]) => each.bottom > edge + 1);
      return `${/flood \d+/.exec(words)} at ${Math.round(box.top - edge)}`;
    });
  let before = null;
  await until("it to be at rest", async () => before === (before = await reading()) && /flood/.test(before));
  await go(page, "#/clearances");
  await page.goBack();
  await page.waitForSelector(".item");
  await until(`${before} again`, async () => (await reading()) === before);
  await daemon.cli("kill", session);
  await well(person);
});

test("198 sessions are there within eight seconds on a slow line", async () => {
  const own = await Daemon.start({
    config: `[limits]\nmax_sessions = 210\nmin_free_memory_mib = 0\n${profile("many", ["serve"])}${profile("asker", [
      "flood-stderr:6000",
      clearance(1, { title: "Edit", file_path: "a.rs", diff: LONG_DIFF.repeat(4), risk_level: "low" }),
      "serve",
    ])}`,
  });
  try {
    const first = await signedIn(own);
    await startMany(first.page, { agent: "many", workspace: own.workspace }, 188);
    await startMany(first.page, { agent: "asker", workspace: own.workspace, defer: false }, 10);
    await until("all to ask", async () => (await own.json("clearances")).items.length === 10);
    await first.context.close();
    const person = await visitor();
    const { page } = person;
    const client = await page.createCDPSession();
    await client.send("Network.enable");
    // Slow 3G, as the tools of browsers have it.
    const throughput = (400 * 1024) / 8;
    await client.send("Network.emulateNetworkConditions", {
      offline: false,
      latency: 400,
      downloadThroughput: throughput,
      uploadThroughput: throughput,
    });
    let bytes = 0;
    client.on("Network.loadingFinished", ({ encodedDataLength }) => (bytes += encodedDataLength));
    const link = await own.cli("console");
    const begin = performance.now();
    await page.goto(link, { timeout: 60000 });
    await page.waitForFunction(
      () =>
        document.documentElement.dataset.ready === "yes" &&
        document.querySelector(".tab[aria-pressed=true] .count")?.textContent === "198",
      { timeout: 60000 },
    );
    const took = performance.now() - begin;
    console.log(`198 sessions on slow 3G: ${(bytes / 1024).toFixed(0)} KB, ${(took / 1000).toFixed(1)} s`);
    assert.ok(took < 8000, `${took} ms`);
    assert.deepEqual(person.trouble, []);
    await person.context.close();
  } finally {
    await own.close();
  }
});

for (const dark of [false, true]) {
  test(`no barrier on any page, ${dark ? "dark" : "light"}`, async () => {
    const session = await daemon.run([
      "status:# Hi\n\n- one\n- two",
      `heartbeat:[{"label":"a","status":"completed"},{"label":"b","status":"in_progress"}]`,
      clearance(1, { title: "Edit a.rs", file_path: "a.rs", diff: DIFF, command: "rm -rf x", risk_level: "high" }),
      "question:q:How?",
      "serve",
    ]);
    const id = await pendingOf(session);
    const person = await signedIn(daemon, { dark });
    const { page } = person;
    for (const hash of ["#/", "#/clearances", `#/s/${session}`, "#/policy", "#/audit", "#/charts", "#/settings"]) {
      await go(page, hash);
      await page.waitForNetworkIdle({ concurrency: 1 });
      await barriers(page, hash);
    }
    await go(page, "#/clearances", wholeCard(id));
    await press(page, "Deny with reason…", cardOf(id));
    await page.waitForSelector("dialog[open]");
    await barriers(page, "a dialog");
    await daemon.cli("kill", session);
    await well(person);
    if (dark) return;
    const stranger = await visitor();
    await stranger.page.goto(daemon.url);
    await stranger.page.waitForSelector("#token");
    await barriers(stranger.page, "the way in");
    await well(stranger);
  });
}

async function barriers(page, where) {
  await page.evaluate(() =>
    Promise.all(
      document
        .getAnimations()
        .filter((each) => each.effect?.getComputedTiming().iterations !== Infinity)
        .map((each) => each.finished.catch(() => {})),
    ),
  );
  // Past the page's own policy, which lets no such script in.
  const client = await page.createCDPSession();
  const run = async (expression) => {
    const { result, exceptionDetails } = await client.send("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
    return result.value;
  };
  await run(axeSource);
  const found = await run(
    `axe.run(document, { resultTypes: ["violations"] }).then((all) => all.violations.filter((each) => ["serious", "critical"].includes(each.impact)).map((each) => each.id + ": " + each.nodes.slice(0, 3).map((node) => node.html.slice(0, 200) + " " + (node.any[0]?.message ?? "")).join(" | ")))`,
  );
  await client.detach();
  assert.deepEqual(found, [], where);
}
