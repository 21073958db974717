// @ts-check
// The box to write to an agent, below the queue of prompts that were not sent yet.

import * as api from "./api.js";
import { pageBindings } from "./page.js";
import { h, icon, toast } from "./dom.js";
import { on, state } from "./live.js";
import { queue } from "./prompts/queue.js";
import { may } from "./store.js";
import { clean } from "./text.js";

/**
 * A field that keeps its text until it is sent, also over a reload.
 *
 * @param {string} session
 * @param {() => void} send
 */
function draft(session, send) {
  const key = `draft ${session}`;
  const field = h("textarea", {
    id: "prompt",
    rows: "2",
    placeholder: "Tell the agent what to do",
    "aria-label": "Prompt",
    value: sessionStorage.getItem(key) ?? "",
    oninput: () => sessionStorage.setItem(key, field.value),
    /** @param {KeyboardEvent} event */
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.repeat) send();
      if (event.key === "Escape") field.blur();
    },
  });
  /** @param {string} words */
  const sent = (words) => {
    // Text that was typed meanwhile was not sent: keep it.
    if (field.value !== words) return;
    field.value = "";
    sessionStorage.removeItem(key);
  };
  return { field, sent };
}

/** @param {string} session */
export function composer(session) {
  const { field, sent } = draft(session, () => send());
  const sender = h("button", { type: "button", class: "primary", onclick: () => send() }, icon("send"), "Send");
  const waiting = queue(session);
  const hint = h("span", { class: "faint hint" }, "Ctrl+Enter sends");
  const element = h("div", { class: "composer" }, waiting.element, h("div", { class: "row" }, field, sender), hint);

  async function send() {
    const words = field.value;
    if (!words.trim()) return field.focus();
    if (sender.disabled) return;
    sender.disabled = true;
    try {
      const prompt = await api.post(`/sessions/${session}/prompts`, { text: words }, `web-${crypto.randomUUID()}`);
      sent(words);
      if (prompt.state === "failed") toast(`Not delivered: ${clean(prompt.error)}`, "error");
      waiting.refresh();
    } catch (error) {
      toast(api.why(error), "error");
    } finally {
      sender.disabled = false;
    }
  }

  const off = on("events", (events) => {
    if (events.some((event) => event.session === session && event.kind.startsWith("prompt."))) waiting.refresh();
  });
  const { bind, close } = pageBindings();
  bind(
    () => ["ended", "parked"].includes(state.sessions.get(session)?.phase ?? "") || !may(state, "operator"),
    (hidden) => (element.hidden = hidden),
  );
  return {
    element,
    focus: () => field.focus(),
    close() {
      off();
      close();
    },
  };
}
