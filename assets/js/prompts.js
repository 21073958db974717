// The box to write to an agent, and what waits to be told: reworded, taken back, put in another order.

import * as api from "./api.js";
import { h, button, icon, ask, toast, keyed, text } from "./dom.js";
import { on, state } from "./live.js";
import { may } from "./store.js";
import { clean, cut } from "./text.js";

/** In the order in which they leave. */
export const inOrder = (prompts) =>
  prompts
    .filter((prompt) => prompt.state === "queued")
    .sort((a, b) => (a.place ?? Infinity) - (b.place ?? Infinity) || a.at.localeCompare(b.at) || 0);

async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    toast(api.why(error), "error");
    return null;
  }
}

export function box(session) {
  const draftKey = `draft ${session}`;
  const field = h("textarea", {
    id: "prompt",
    rows: "2",
    placeholder: "Tell the agent what to do",
    "aria-label": "Prompt",
    value: sessionStorage.getItem(draftKey) ?? "",
    oninput: () => sessionStorage.setItem(draftKey, field.value),
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.repeat) send();
      if (event.key === "Escape") field.blur();
    },
  });
  const hint = h("span", { class: "faint hint" }, "Ctrl+Enter sends");
  const sender = h("button", { type: "button", class: "primary", onclick: () => send() }, icon("send"), "Send");
  const list = h("ol", { class: "queue", "aria-label": "Prompts that wait" });
  const element = h("div", { class: "composer" }, list, h("div", { class: "row" }, field, sender), hint);
  let queued = [];

  async function send() {
    const words = field.value;
    if (!words.trim()) return field.focus();
    if (sender.disabled) return;
    sender.disabled = true;
    const sent = await attempt(() =>
      api.post(`/sessions/${session}/prompts`, { text: words }, `web-${crypto.randomUUID()}`),
    );
    sender.disabled = false;
    if (!sent) return;
    // What was typed meanwhile is not what was sent.
    if (field.value === words) {
      field.value = "";
      sessionStorage.removeItem(draftKey);
    }
    if (sent.state === "failed") toast(`Not delivered: ${clean(sent.error ?? "")}`, "error");
    refresh();
  }

  async function edit(prompt) {
    const area = h("textarea", { id: "words", rows: "6", value: prompt.text, required: true });
    const words = await ask({
      title: "Edit this prompt",
      body: [h("label", { for: "words" }, "It has not been sent"), area],
      yes: "Save",
      read: () => area.value,
    });
    if (words?.trim()) await attempt(() => api.post(`/prompts/${prompt.id}`, { text: words }));
    refresh();
  }

  const moveTo = async (prompt, place) => {
    await attempt(() => api.post(`/prompts/${prompt.id}`, { place }));
    refresh();
  };
  const remove = async (prompt) => {
    await attempt(() => api.del(`/prompts/${prompt.id}`));
    refresh();
  };

  function create(prompt) {
    let current = prompt;
    const words = h("span", { class: "grow clip" });
    const at = () => queued.findIndex((each) => each.id === current.id);
    const tool = (name, label, act) =>
      h("button", { type: "button", class: "plain", "aria-label": label, title: label, onclick: act }, icon(name));
    const element = h(
      "li",
      { class: "row" },
      h("span", { class: "badge" }, "queued"),
      words,
      tool("up", "Sooner", () => moveTo(current, Math.max(0, at() - 1))),
      tool("down", "Later", () => moveTo(current, at() + 1)),
      button("Edit", () => edit(current), { class: "small" }),
      tool("cross", "Take back", () => remove(current)),
    );
    return { element, update: (now) => ((current = now), text(words, clean(cut(now.text, 200)))) };
  }

  async function refresh() {
    const page = await api.get(`/sessions/${session}/prompts?limit=200`).catch(() => null);
    if (!page) return;
    queued = inOrder(page.items.reverse());
    keyed(
      list,
      queued,
      (prompt) => prompt.id,
      create,
      (entry, prompt) => entry.update(prompt),
    );
    list.hidden = queued.length === 0;
  }

  const off = on("events", (events) => {
    if (events.some((event) => event.session === session && event.kind.startsWith("prompt."))) refresh();
  });
  const draw = () => {
    const ended = ["ended", "parked"].includes(state.sessions.get(session)?.phase);
    element.hidden = ended || !may(state, "operator");
  };
  draw();
  const offChange = on("change", draw);
  list.hidden = true;
  refresh();
  return { element, focus: () => field.focus(), close: () => (off(), offChange()) };
}
