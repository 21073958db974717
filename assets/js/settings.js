// @ts-check
// Settings: the caller, who is signed in, and the console in this browser.

import * as api from "./api.js";
import { h, button, confirm, toast } from "./dom.js";
import { state } from "./live.js";
import { select } from "./select.js";
import { row, table } from "./table.js";
import { clean, clock, cut, since } from "./text.js";
import * as notify from "./notify.js";
import { help } from "./keys.js";
/** @import { GetAnswer, View } from "../types/models" */

/** @typedef {GetAnswer<"/web/sessions">["items"][number]} SignedIn */

/** @type {Array<[string, string]>} */
const THEMES = [
  ["", "As the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];

function applyTheme() {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** @type {Record<string, string>} */
const BROWSERS = { Edg: "Edge", OPR: "Opera" };

/**
 * The name of a browser and its system, from its User-Agent.
 *
 * @param {string | null} name
 */
function browser(name) {
  const [kind] = /Firefox|Edg|OPR|Chrome|Safari|curl/.exec(name ?? "") ?? ["a browser"];
  const [system] = /Android|iPhone|iPad|Mac OS X|Windows|Linux/.exec(name ?? "") ?? [""];
  return `${BROWSERS[kind] ?? kind}${system ? ` on ${system}` : ""}`;
}

async function signOut() {
  await api.del("/web/sessions/current").catch(() => {});
  dispatchEvent(new Event("signed-out"));
}

/**
 * @param {SignedIn} each
 * @param {() => void} again
 */
async function end(each, again) {
  const body = h("p", {}, `${clean(each.name)}, ${browser(each.browser)}`);
  if (!(await confirm({ title: "Sign out this browser?", body, yes: "Sign out", danger: true }))) return;
  try {
    await api.del(`/web/sessions/${each.id}`);
    toast("Signed out");
  } catch (error) {
    toast(api.why(error), "error");
  }
  again();
}

/**
 * @param {SignedIn[]} items
 * @param {() => void} again shows them as they are now
 */
function signedInTable(items, again) {
  const rows = items.map((each) =>
    row(
      [clean(each.name), each.current && h("span", { class: "badge" }, "this browser")],
      clean(each.role),
      `${clock(each.created_at)}${each.token ? ", with a token" : ""}`,
      `${since(each.last_used_at)} ago, ${clean(each.last_used_from)}`,
      h("span", { class: "faint", title: clean(cut(each.browser ?? "", 200)) }, browser(each.browser)),
      !each.current && button("Sign out…", () => end(each, again), { class: "small danger" }),
    ),
  );
  return table(["Name", "Role", "Since", "Last used", "Browser", ""], rows);
}

function signedIn() {
  const place = h("div", {});
  const load = async () => {
    try {
      place.replaceChildren(signedInTable((await api.get("/web/sessions")).items, load));
    } catch (error) {
      place.replaceChildren(h("p", { class: "trouble" }, api.why(error)));
    }
  };
  load();
  return place;
}

function you() {
  const bridges = Object.entries(state.bridges).map(([name, how]) => `${clean(name)} ${clean(how)}`);
  const version = `intercom ${clean(state.version)}${bridges.length ? ` · ${bridges.join(", ")}` : ""}`;
  return [
    h("p", {}, "Signed in as ", h("strong", {}, clean(state.you?.name)), `, ${clean(state.you?.role)}.`),
    h("p", { class: "faint" }, version),
    h("div", { class: "row" }, button("Sign out", signOut, { class: "danger" }), button("Keys", help, {})),
  ];
}

function thisBrowser() {
  /** @param {string} value */
  const choose = (value) => {
    localStorage.setItem("theme", value);
    applyTheme();
  };
  const theme = select(THEMES, localStorage.getItem("theme") ?? "", choose, { id: "theme" });
  const bell = h("input", {
    type: "checkbox",
    id: "bell",
    checked: notify.wanted(),
    disabled: !notify.able(),
    onchange: async () => {
      const yes = await notify.want(bell.checked);
      if (bell.checked && !yes) toast("The browser does not allow notifications", "error");
      bell.checked = yes;
    },
  });
  const words = "Notify me about pending requests and failures while this page is in the background";
  return [
    h("div", { class: "row" }, h("label", { for: "theme" }, "Colours"), theme),
    h("div", { class: "choice" }, bell, h("label", { for: "bell" }, words)),
  ];
}

/** @returns {View} */
export function view() {
  const element = h(
    "div",
    { class: "page narrow" },
    h("h1", {}, "Settings"),
    h("section", { class: "panel" }, h("h2", {}, "You"), you()),
    h("section", { class: "panel" }, h("h2", {}, "This browser"), thisBrowser()),
    h("section", { class: "panel" }, h("h2", {}, "Signed in"), signedIn()),
  );
  return { element, title: "Settings", close() {} };
}
