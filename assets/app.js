// @ts-check
// The console: signs in, opens the one connection, and shows the page that the address names.

import * as live from "./js/live.js";
import { h, icon, text, attribute } from "./js/dom.js";
import { may, waiting } from "./js/store.js";
import * as address from "./js/address.js";
import { takeCode, withCode, view as signIn } from "./js/signin.js";
import { statusOf, why } from "./js/api.js";
import * as fleet from "./js/fleet.js";
import * as notify from "./js/notify.js";
import * as keys from "./js/keys.js";
/** @import { Role, View } from "./types/models" */

/** @typedef {{ name: string, open: () => Promise<View> }} Opened a page that an address names */

const root = /** @type {HTMLElement} */ (document.getElementById("app"));

// The hash of the address is the route, so the skip link must not change it.
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main")?.focus();
});

const theme = localStorage.getItem("theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

/**
 * Pages other than the first are fetched on demand.
 *
 * @type {Array<Opened & { hash: string, label: string, least?: Role }>}
 */
const PAGES = [
  { hash: "#/", name: "fleet", label: "Fleet", open: async () => fleet.view() },
  {
    hash: "#/clearances",
    name: "inbox",
    label: "Clearances",
    open: async () => (await import("./js/inbox.js")).view(),
  },
  { hash: "#/policy", name: "policy", label: "Policy", open: async () => (await import("./js/policy.js")).view() },
  {
    hash: "#/audit",
    name: "audit",
    label: "Audit",
    least: "admin",
    open: async () => (await import("./js/audit.js")).view(),
  },
  { hash: "#/charts", name: "charts", label: "Charts", open: async () => (await import("./js/charts.js")).view() },
  {
    hash: "#/settings",
    name: "settings",
    label: "Settings",
    open: async () => (await import("./js/settings.js")).view(),
  },
];

/**
 * @param {string} path
 * @returns {Opened}
 */
function find(path) {
  const session = /^#\/s\/(ses_[0-9a-z]+)(\/write)?$/.exec(path);
  if (session)
    return {
      name: "session",
      open: async () => (await import("./js/session.js")).view(session[1], { write: Boolean(session[2]) }),
    };
  return PAGES.find((page) => page.hash === path) ?? PAGES[0];
}

function frame() {
  const count = h("span", { class: "count tabular", hidden: true });
  const links = PAGES.filter(({ least }) => !least || may(live.state, least)).map((page) =>
    h(
      "a",
      { href: page.hash, class: "nav", data: { page: page.name } },
      icon(/** @type {import("./js/dom.js").Icon} */ (page.name)),
      h("span", {}, page.label),
      page.name === "inbox" ? count : null,
    ),
  );
  const banner = h("div", { class: "banner", role: "status", hidden: true });
  const main = h("main", { id: "main", tabindex: "-1" });
  const element = h(
    "div",
    { class: "frame" },
    h(
      "nav",
      { class: "sidebar", "aria-label": "Console" },
      h(
        "a",
        { class: "brand", href: "#/" },
        h("img", { src: "/icon.svg", alt: "", width: "24", height: "24" }),
        h("span", {}, "intercom"),
      ),
      links,
    ),
    h("div", { class: "column" }, banner, main),
  );
  return { element, main, banner, links, count };
}

/** @type {View | null} */
let shown = null;
/** @type {ReturnType<typeof frame> | null} */
let parts = null;
let turn = 0;
// True if the requested page could not be fetched: it is fetched again once the connection is back.
let missed = false;

/** @returns {View} */
const away = () => ({
  element: h(
    "div",
    { class: "page" },
    h("p", { class: "empty" }, "This page loads when the daemon can be reached again."),
  ),
  title: "Offline",
  close() {},
});

async function route() {
  if (!parts) return;
  turn += 1;
  const mine = turn;
  const hash = location.hash || "#/";
  const page = find(address.pathOf(hash));
  let failed = false;
  const view = await page.open().catch(() => ((failed = true), away()));
  // The person opened another page while this one was loading.
  if (mine !== turn) return view.close();
  missed = failed;
  shown?.close();
  const moved = shown !== null;
  shown = view;
  const position = address.turn(parts.main);
  parts.main.replaceChildren(view.element);
  parts.main.dataset.hash = hash;
  for (const link of parts.links) attribute(link, "aria-current", link.dataset.page === page.name ? "page" : null);
  notify.setTitle(view.title);
  address.restore(parts.main, position);
  if (moved && !document.activeElement?.closest(".composer")) parts.main.focus({ preventScroll: true });
}

/** @type {ReturnType<typeof setInterval> | undefined} */
let ticking;
function showStatus() {
  if (!parts) return;
  const { status } = live;
  clearInterval(ticking);
  parts.banner.hidden = status.name !== "offline";
  document.documentElement.dataset.connection = status.name;
  if (status.name === "live" && missed) route();
  if (status.name !== "offline") return;
  const { again } = status;
  const words = h("span", {});
  const draw = () =>
    text(
      words,
      `Offline. This page may be out of date. Retrying ${again > Date.now() ? `in ${Math.ceil((again - Date.now()) / 1000)} s` : "now"}.`,
    );
  draw();
  ticking = setInterval(draw, 1000);
  const retry = h("button", { type: "button", class: "small", onclick: live.retry }, "Retry now");
  parts.banner.replaceChildren(words, retry);
}

/** @param {string | null} problem */
function leave(problem) {
  shown?.close();
  shown = parts = null;
  turn += 1;
  live.stop();
  document.title = "Sign in · intercom";
  root.replaceChildren(signIn(problem, () => location.reload()));
  document.getElementById("token")?.focus();
}

async function start() {
  const code = takeCode();
  /** @type {string | null} */
  let problem = null;
  if (code) await withCode(code).catch((error) => (problem = why(error)));
  try {
    await live.load();
  } catch (error) {
    if (statusOf(error) === 401) return leave(problem);
    root.replaceChildren(
      h(
        "main",
        { id: "main", class: "signin-page", tabindex: "-1" },
        h("h1", {}, "intercom"),
        h("p", {}, "The daemon cannot be reached. This page retries automatically."),
      ),
    );
    return void setTimeout(start, 2000);
  }
  parts = frame();
  root.replaceChildren(parts.element);
  live.on("status", showStatus);
  live.on("anew", route);
  live.on("change", () => {
    if (!parts) return;
    const now = waiting(live.state);
    parts.count.hidden = !now;
    text(parts.count, now);
  });
  notify.listen();
  keys.listen();
  addEventListener("hashchange", route);
  addEventListener("signed-out", () => parts && leave("You are signed out."));
  await route();
  live.touch();
  live.follow();
  document.documentElement.dataset.ready = "yes";
}

start();
