// Pictures of every page, made from a fleet that looks like a day's work. scripts/screenshots runs this.

import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { browser, Daemon, fixture, go, signedIn, until } from "./harness.mjs";

const place = process.argv[2];
mkdirSync(place, { recursive: true });

const RULES = `
[[rule]]
name = "tests"
then = "allow"
command = [["cargo", "test"], ["cargo", "clippy"]]

[[rule]]
name = "secrets"
then = "deny"
path = ["**/.env", "**/*.pem"]

[[rule]]
name = "pushes need a look"
then = "ask"
command = "git push"
`;

const DIFF = `--- a/src/cart.rs
+++ b/src/cart.rs
@@ -18,10 +18,11 @@ impl Cart {
     /// What it all costs, in cents.
     pub fn total(&self) -> u64 {
-        let sum = self.items.iter().map(|item| item.price).sum();
-        sum - self.discount
+        let sum: u64 = self.items.iter().map(|item| item.price * item.count).sum();
+        // A discount never makes it less than nothing.
+        sum.saturating_sub(self.discount)
     }
 
     pub fn is_empty(&self) -> bool {
-        self.items.len() == 0
+        self.items.is_empty()
     }
@@ -61,4 +63,9 @@ mod tests {
     fn an_empty_cart_costs_nothing() {
         assert_eq!(Cart::default().total(), 0);
     }
+
+    #[test]
+    fn three_of_a_kind_cost_three_times_as_much() {
+        assert_eq!(cart(&[(250, 3)]).total(), 750);
+    }
 }
`;

const clearance = (id, params) => `clearance:${id}:${JSON.stringify(params)}`;
const plan = (...steps) => `heartbeat:${JSON.stringify(steps.map(([label, status]) => ({ label, status })))}`;

const profiles = [];
/** Each has a profile, so that the pictures show names and no paths of this machine. */
const agent = (name, agent_, steps) => profiles.push({ name, agent: `${agent_}`, steps });
const done = "completed";
agent("checkout-total", "claude", [
  "status:Reading `src/cart.rs`. The total ignores the **count** of each item.",
  "status:Two things are wrong:\n\n1. `total` adds prices without counts\n2. a discount larger than the sum *wraps around*\n\nI fix both and add a test.",
  plan(
    ["Find the bug", done],
    ["Fix the total", "in_progress"],
    ["Add a test", "pending"],
    ["Run the tests", "pending"],
  ),
  clearance(1, {
    title: "Edit src/cart.rs",
    description: "Counts every item, and a discount never goes below zero.",
    file_path: "src/cart.rs",
    diff: DIFF,
    risk_level: "medium",
  }),
  "answer:1",
  "serve",
]);
agent("release-0.9", "codex", [
  plan(["Changelog", done], ["Tag", done], ["Push", "in_progress"]),
  clearance(1, {
    title: "Push the release branch",
    description: "Publishes `v0.9.0` to the team's remote.",
    command: "git push --force origin release/0.9",
    risk_level: "high",
  }),
  "answer:1",
  "serve",
]);
agent("docs-sweep", "gemini", [
  plan(["Collect pages", done], ["Fix links", done], ["Spelling", "in_progress"], ["Build", "pending"]),
  "status:Checked 41 of 60 pages.",
  "serve",
]);
agent("flaky-login-test", "claude", [
  "status:Running the login test 200 times.",
  plan(["Reproduce", "in_progress"], ["Bisect", "pending"]),
  "serve",
]);
agent("upgrade-tokio", "opencode", [
  "question:1:tokio 2 is out. Shall I move to it, or stay with the latest 1.x?",
  "serve",
]);
agent("tidy-imports", "codex", [
  "status:Sorted 212 imports.",
  clearance(1, { title: "Format all files", command: "cargo fmt --all", risk_level: "low" }),
  "answer:1",
  "status:Done.",
  "exit:0",
]);

// A directory of our own; its name stands in the pictures.
const work = mkdtempSync(join(tmpdir(), "work-"));
const program = join(work, "bin/agent");
mkdirSync(join(work, "bin"));
copyFileSync(fixture, program);
const toml = (name, { steps }) => `[agents.${name}]\ncommand = "${program}"\nargs = ${JSON.stringify(steps)}\n`;
const names = profiles.map(({ agent: kind }, n) =>
  profiles.findIndex((each) => each.agent === kind) === n ? kind : `${kind}-${n}`,
);
const daemon = await Daemon.start({
  config: RULES + profiles.map((each, n) => toml(names[n], each)).join("\n"),
  workspace: join(work, "shop"),
});
const ids = {};
for (const [n, { name }] of profiles.entries())
  ids[name] = await daemon.cli("run", "--agent", names[n], "--name", name, "--workspace", daemon.workspace);
const [checkout, finished] = [ids["checkout-total"], ids["tidy-imports"]];
await until("the clearances", async () => (await daemon.json("clearances")).items.length >= 3);
// Somebody takes a moment to decide.
await new Promise((resolve) => setTimeout(resolve, 2500));
const fmt = (await daemon.json("clearances")).items.find((each) => each.session === finished);
if (fmt) await daemon.cli("approve", fmt.id).catch(() => {});

const shots = [];
async function shoot(person, name) {
  await person.page.evaluate(() => document.fonts.ready);
  await new Promise((resolve) => setTimeout(resolve, 350));
  await person.page.screenshot({ path: join(place, `${name}.png`), optimizeForSpeed: false });
  shots.push(name);
}

const PAGES = [
  ["fleet", "#/"],
  ["session", `#/s/${checkout}`],
  ["clearances", "#/clearances"],
  ["policy", "#/policy"],
  ["audit", "#/audit"],
  ["charts", "#/charts"],
  ["settings", "#/settings"],
];
const wanted = process.env.SHOTS ? new Set(process.env.SHOTS.split(",")) : null;
for (const [kind, options] of [
  ["light", {}],
  ["dark", { dark: true }],
  ["phone", { width: 360, height: 740 }],
  ["phone-dark", { width: 360, height: 740, dark: true }],
  ["wide", { width: 1920, height: 1080 }],
]) {
  const pages = PAGES.filter(([name]) => (wanted ? wanted.has(`${name}-${kind}`) : true));
  if (!pages.length) continue;
  const person = await signedIn(daemon, options);
  for (const [name, hash] of pages) {
    await go(person.page, hash);
    await shoot(person, `${name}-${kind}`);
  }
  if (person.trouble.length) console.error(kind, person.trouble);
  await person.context.close();
}
await browser.close();
await daemon.close();
rmSync(work, { recursive: true, force: true });
console.log(shots.join("\n"));
