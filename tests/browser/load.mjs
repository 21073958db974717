// 500 sessions that tell 1,000 events a second between them: the page stays responsive. scripts/test-full runs this.

import { browser, Daemon, fixture, signedIn, until } from "./harness.mjs";

const SESSIONS = Number(process.env.INTERCOM_TEST_SESSIONS ?? 500);
const RATE = 1000;
const SECONDS = Number(process.env.INTERCOM_TEST_SECONDS ?? 30);

// Each says something every so often, so that together it is so many a second.
const pause = Math.round((1000 * SESSIONS) / RATE);
const steps = [];
for (let n = 0; n < (SECONDS * 3 * 1000) / pause; n += 1) steps.push(`status:step ${n}`, `sleep:${pause}`);
const config = `[limits]\nmax_sessions = ${SESSIONS + 10}\nmin_free_memory_mib = 0\n[agents.loud]\ncommand = "${fixture}"\nargs = ${JSON.stringify(["expect:prompt/send", ...steps, "serve"])}\n`;
const daemon = await Daemon.start({ config });
const ids = [];
let [person, measured] = [null, null];
try {
  while (ids.length < SESSIONS)
    ids.push(
      ...(await Promise.all(
        Array.from({ length: Math.min(8, SESSIONS - ids.length) }, () =>
          daemon.cli("run", "--agent", "loud", "--workspace", daemon.workspace),
        ),
      )),
    );
  person = await signedIn(daemon);
  const { page } = person;
  await page.waitForFunction(
    (count) => document.querySelector(".tab[aria-pressed=true] .count")?.textContent === String(count),
    { timeout: 60000 },
    SESSIONS,
  );
  for (let n = 0; n < ids.length; n += 16)
    await Promise.all(ids.slice(n, n + 16).map((id) => daemon.cli("send", id, "go")));
  measured = await page.evaluate(async (seconds) => {
    const { state } = await import("/js/live.js");
    const begin = performance.now();
    const first = state.seq;
    const gaps = [];
    let last = performance.now();
    while (performance.now() - begin < seconds * 1000) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      const now = performance.now();
      gaps.push(now - last);
      last = now;
    }
    gaps.sort((a, b) => a - b);
    const at = (share) => Math.round(gaps[Math.floor(gaps.length * share)] * 10) / 10;
    return {
      events_per_second: Math.round((state.seq - first) / seconds),
      longest_gap_ms: Math.round(gaps[gaps.length - 1]),
      p99_gap_ms: at(0.99),
      sessions: state.sessions.size,
    };
  }, SECONDS);
  const typed = performance.now();
  await page.type("input[type=search]", ids[0].slice(4, 12));
  await until("the search to find it", () => page.evaluate(() => document.querySelectorAll("a.session").length === 1));
  measured.search_ms = Math.round(performance.now() - typed);
  console.log(`console under load: ${JSON.stringify(measured)}`);
} finally {
  await browser.close();
  await daemon.close();
}
const fine =
  measured.longest_gap_ms < 500 &&
  measured.p99_gap_ms < 100 &&
  measured.search_ms < 2000 &&
  measured.events_per_second > RATE * 0.7;
if (!fine || person.trouble.length) {
  console.error("the page did not stay responsive", person.trouble);
  process.exit(1);
}
