// A real daemon in a directory of its own, and a real browser.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import puppeteer from "puppeteer-core";

const run = promisify(execFile);
const binaries = process.env.INTERCOM_BIN_DIR;
if (!binaries) throw new Error("INTERCOM_BIN_DIR names no directory with the daemon: use scripts/test");
const PATIENCE = 20000;

export const fixture = join(binaries, "examples/fixture-agent");
export const acpFixture = join(binaries, "examples/acp-agent");

/** Looks again and again until there is something to see. */
export async function until(what, look, patience = PATIENCE) {
  const end = Date.now() + patience;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export class Daemon {
  static async start({ dir = null, config = "", demo = false, workspace = null } = {}) {
    const daemon = new Daemon();
    daemon.dir = dir ?? mkdtempSync(join(tmpdir(), "console-"));
    daemon.workspace = workspace ?? join(daemon.dir, "shop");
    mkdirSync(daemon.workspace, { recursive: true });
    const port = daemon.dir && dir ? readFileSync(join(daemon.dir, "port"), "utf8") : "0";
    writeFileSync(join(daemon.dir, "config.toml"), `${config}\n[api]\nlisten = "127.0.0.1:${port}"\n`);
    daemon.env = {
      PATH: process.env.PATH,
      HOME: daemon.dir,
      INTERCOM_CONFIG: join(daemon.dir, "config.toml"),
      INTERCOM_STATE_DIR: join(daemon.dir, "state"),
    };
    daemon.child = spawn(join(binaries, "intercom"), ["serve", ...(demo ? ["--demo"] : [])], {
      env: daemon.env,
      cwd: daemon.workspace,
      stdio: ["ignore", "ignore", "pipe"],
    });
    daemon.log = "";
    daemon.child.stderr.on("data", (piece) => (daemon.log += piece));
    try {
      await until("the daemon", () => {
        if (daemon.child.exitCode !== null) throw new Error(`the daemon did not start: ${daemon.log}`);
        return /intercom is ready/.test(daemon.log);
      });
    } catch (error) {
      // Nobody holds this daemon yet, so nobody else can end it.
      await daemon.end();
      throw error;
    }
    daemon.url = JSON.parse(readFileSync(join(daemon.dir, "state/daemon.json"), "utf8")).url;
    daemon.port = new URL(daemon.url).port;
    writeFileSync(join(daemon.dir, "port"), daemon.port);
    return daemon;
  }

  async cli(...args) {
    const { stdout } = await run(join(binaries, "intercom"), args, {
      env: this.env,
      cwd: this.workspace,
      maxBuffer: 1 << 26,
    });
    return stdout.trim();
  }

  async json(...args) {
    return JSON.parse(await this.cli(...args, "--json"));
  }

  /** A fixture agent with these steps. */
  run(steps, ...options) {
    return this.cli("run", "--workspace", this.workspace, ...options, "--", fixture, ...steps);
  }

  /** As `kill -9` would, or gently. */
  async end(signal = "SIGKILL") {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      this.child.kill(signal);
      await once(this.child, "exit");
    }
  }

  async close() {
    const sessions = await this.json("ls").catch(() => ({ items: [] }));
    // One without a process ends with the daemon.
    for (const session of sessions.items) if (session.pid) await this.cli("kill", session.id).catch(() => {});
    await this.end("SIGTERM");
    rmSync(this.dir, { recursive: true, force: true });
  }
}

export const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars"],
});

/** Somebody with a browser of their own: cookies are not shared. Whatever goes wrong in the page is remembered. */
export async function visitor({ width = 1280, height = 860, dark = false } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }]);
  page.setDefaultTimeout(PATIENCE);
  const trouble = [];
  const requests = [];
  page.on("console", (message) => message.type() === "error" && trouble.push(message.text()));
  page.on("pageerror", (error) => trouble.push(String(error)));
  page.on("dialog", (dialog) => (trouble.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
  page.on("request", (request) => requests.push(request.url()));
  return { page, context, trouble, requests };
}

export async function signedIn(daemon, options) {
  const person = await visitor(options);
  await person.page.goto(await daemon.cli("console"));
  await person.page.waitForSelector("html[data-connection=live]");
  return person;
}

/** Signed in with a token of this role. */
export async function withRole(daemon, role, options) {
  const person = await visitor(options);
  const token = await daemon.cli("token", "create", "--name", role, "--role", role);
  await person.page.goto(daemon.url);
  await person.page.waitForSelector("#token");
  await person.page.type("#token", token);
  await person.page.click("form button.primary");
  await person.page.waitForSelector("html[data-connection=live]");
  return person;
}

/** Goes to a page of the console. */
export async function go(page, hash, selector = "main .page") {
  await page.evaluate((wanted) => (location.hash = wanted), hash);
  await page.waitForFunction((wanted) => document.querySelector("main")?.dataset.hash === wanted, {}, hash);
  await page.waitForSelector(selector);
}

/** The button with these words, inside of what the selector finds. */
export async function press(page, words, inside = "body") {
  const handle = await page.waitForFunction(
    (wanted, where) =>
      [...document.querySelectorAll(`${where} button, ${where} a`)].find(
        (each) => each.textContent.trim() === wanted && each.offsetParent !== null,
      ),
    {},
    words,
    inside,
  );
  // As a person would, who cannot press what is behind the bar at the lower edge.
  await handle.evaluate((element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    if (!element.contains(hit)) element.scrollIntoView({ block: "center" });
  });
  await handle.click();
}

export const text = (page, selector) => page.$eval(selector, (element) => element.textContent);
export const waitText = (page, selector, wanted) =>
  page.waitForFunction(
    (where, words) => [...document.querySelectorAll(where)].some((each) => each.textContent.includes(words)),
    {},
    selector,
    wanted,
  );
