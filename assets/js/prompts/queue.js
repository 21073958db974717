// @ts-check
// The queue of prompts that were not sent yet: edit, reorder, withdraw.

import * as api from "../api.js";
import { h, ask, button, icon, keyed, text, toast } from "../dom.js";
import { clean, cut } from "../text.js";
/** @import { Icon } from "../dom.js" */
/** @import { Prompt } from "../../types/models" */

/**
 * In the order of sending.
 *
 * @param {Prompt[]} prompts
 */
const inOrder = (prompts) =>
  prompts
    .filter((prompt) => prompt.state === "queued")
    .sort((a, b) => (a.place ?? Infinity) - (b.place ?? Infinity) || a.at.localeCompare(b.at) || 0);

/**
 * @param {Icon} name
 * @param {string} label
 * @param {() => void} onclick
 */
const tool = (name, label, onclick) =>
  h("button", { type: "button", class: "plain", "aria-label": label, title: label, onclick }, icon(name));

/** @param {Prompt} prompt */
async function reword(prompt) {
  const area = h("textarea", { id: "words", rows: "6", value: prompt.text, required: true });
  const body = [h("label", { for: "words" }, "Prompt (not sent yet)"), area];
  const words = await ask({ title: "Edit this prompt", body, yes: "Save", read: () => area.value });
  if (words?.trim()) await api.post(`/prompts/${prompt.id}`, { text: words });
}

/** @param {string} session */
export function queue(session) {
  const element = h("ol", { class: "queue", "aria-label": "Queued prompts", hidden: true });
  /** @type {Prompt[]} */
  let queued = [];

  async function refresh() {
    const page = await api.get(`/sessions/${session}/prompts?limit=200`).catch(() => null);
    if (!page) return;
    queued = inOrder(page.items.reverse());
    keyed(element, queued, (prompt) => prompt.id, row);
    element.hidden = queued.length === 0;
  }

  /** @param {() => Promise<unknown>} work */
  const act = async (work) => {
    await work().catch((error) => toast(api.why(error), "error"));
    refresh();
  };

  /** @param {Prompt} prompt */
  function row(prompt) {
    let current = prompt;
    const words = h("span", { class: "grow clip" });
    /** @param {1 | -1} step */
    const move = (step) => {
      const at = queued.findIndex((each) => each.id === current.id);
      act(() => api.post(`/prompts/${current.id}`, { place: Math.max(0, at + step) }));
    };
    const element = h(
      "li",
      { class: "row" },
      h("span", { class: "badge" }, "queued"),
      words,
      tool("up", "Move up", () => move(-1)),
      tool("down", "Move down", () => move(1)),
      button("Edit", () => act(() => reword(current)), { class: "small" }),
      tool("cross", "Withdraw", () => act(() => api.del(`/prompts/${current.id}`))),
    );
    /** @param {Prompt} now */
    const update = (now) => {
      current = now;
      text(words, clean(cut(now.text, 200)));
    };
    return { element, update };
  }

  refresh();
  return { element, refresh };
}
