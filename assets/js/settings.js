// Who you are here, who is signed in, and how the console behaves in this browser.

import * as api from "./api.js";
import { h, button, ask, toast } from "./dom.js";
import { state } from "./live.js";
import { clean, clock, cut, since } from "./text.js";
import * as notify from "./notify.js";
import { help } from "./keys.js";

export function applyTheme() {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** What a browser is, of all that it calls itself. */
function browser(name) {
  const [kind] = /Firefox|Edg|OPR|Chrome|Safari|curl/.exec(name ?? "") ?? ["a browser"];
  const [system] = /Android|iPhone|iPad|Mac OS X|Windows|Linux/.exec(name ?? "") ?? [""];
  const known = { Edg: "Edge", OPR: "Opera" };
  return `${known[kind] ?? kind}${system ? ` on ${system}` : ""}`;
}

export async function signOut() {
  await api.del("/web/sessions/current").catch(() => {});
  dispatchEvent(new Event("signed-out"));
}

function sessionsTable(items, again) {
  const end = async (each) => {
    if (
      !(await ask({
        title: "Sign this one out?",
        body: [h("p", {}, `${clean(each.name)}, ${browser(each.browser)}`)],
        yes: "Sign out",
        danger: true,
      }))
    )
      return;
    try {
      await api.del(`/web/sessions/${each.id}`);
      toast("Signed out");
    } catch (error) {
      toast(api.why(error), "error");
    }
    again();
  };
  const row = (each) =>
    h(
      "tr",
      {},
      h("td", {}, clean(each.name), each.current ? h("span", { class: "badge" }, "this one") : null),
      h("td", {}, clean(each.role)),
      h("td", {}, `${clock(each.created_at)}${each.token ? ", with a token" : ""}`),
      h("td", {}, `${since(each.last_used_at)} ago, ${clean(each.last_used_from)}`),
      h("td", { class: "faint", title: clean(cut(each.browser ?? "", 200)) }, browser(each.browser)),
      h("td", {}, each.current ? null : button("Sign out…", () => end(each), { class: "small danger" })),
    );
  return h(
    "div",
    { class: "scroll", tabindex: "0" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["Who", "Role", "Since", "Last used", "Browser", ""].map((title) =>
            h("th", { scope: "col" }, title || h("span", { class: "unseen" }, "Actions")),
          ),
        ),
      ),
      h("tbody", {}, items.map(row)),
    ),
  );
}

export function view() {
  const place = h("div", {});
  const load = async () => {
    try {
      place.replaceChildren(sessionsTable((await api.get("/web/sessions")).items, load));
    } catch (error) {
      place.replaceChildren(h("p", { class: "trouble" }, api.why(error)));
    }
  };
  load();
  const theme = h(
    "select",
    { id: "theme", onchange: () => (localStorage.setItem("theme", theme.value), applyTheme()) },
    [
      ["", "As the system"],
      ["light", "Light"],
      ["dark", "Dark"],
    ].map(([value, label]) => h("option", { value, selected: value === (localStorage.getItem("theme") ?? "") }, label)),
  );
  const bell = h("input", {
    type: "checkbox",
    id: "bell",
    checked: notify.wanted(),
    disabled: !notify.able(),
    onchange: async () => {
      const yes = await notify.want(bell.checked);
      if (bell.checked && !yes) toast("The browser does not allow it", "error");
      bell.checked = yes;
    },
  });
  const bridges = Object.entries(state.bridges ?? {})
    .map(([name, how]) => `${clean(name)} ${clean(how)}`)
    .join(", ");
  const element = h(
    "div",
    { class: "page narrow" },
    h("h1", {}, "Settings"),
    h(
      "section",
      { class: "panel" },
      h("h2", {}, "You"),
      h("p", {}, "Signed in as ", h("strong", {}, clean(state.you?.name)), `, ${clean(state.you?.role)}.`),
      h("p", { class: "faint" }, `intercom ${clean(state.version)}${bridges ? ` · ${bridges}` : ""}`),
      h("div", { class: "row" }, button("Sign out", signOut, { class: "danger" }), button("Keys", help)),
    ),
    h(
      "section",
      { class: "panel" },
      h("h2", {}, "This browser"),
      h("div", { class: "row" }, h("label", { for: "theme" }, "Colours"), theme),
      h(
        "div",
        { class: "choice" },
        bell,
        h("label", { for: "bell" }, "Notify me when something waits and this page is in the background"),
      ),
    ),
    h("section", { class: "panel" }, h("h2", {}, "Signed in"), place),
  );
  return { element, title: "Settings", close() {} };
}
