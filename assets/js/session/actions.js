// @ts-check
// The actions on a session: nudge, interrupt, snooze, stop, kill, resume.

import * as api from "../api.js";
import { h, ask, button, confirm, replace, toast } from "../dom.js";
import { state } from "../live.js";
import { may } from "../store.js";
/** @import { Bind } from "../bind.js" */

/**
 * Runs an action and shows its result, or the reason of its failure.
 *
 * @template Answer
 * @param {() => Promise<Answer>} work
 * @param {(answer: Answer) => string} done
 */
async function attempt(work, done) {
  try {
    toast(done(await work()));
  } catch (error) {
    toast(api.why(error), "error");
  }
}

/**
 * @param {string} title
 * @param {string} label
 * @param {string} yes
 */
function askWords(title, label, yes) {
  const field = h("textarea", { id: "words", rows: "3", value: "" });
  return ask({ title, body: [h("label", { for: "words" }, label), field], yes, read: () => field.value.trim() });
}

/**
 * Nudges an agent, with this message or the default one.
 *
 * @param {string} id
 * @param {string} [message]
 */
export const sendNudge = (id, message) =>
  attempt(
    () => api.post(`/sessions/${id}/nudge`, message ? { message } : {}),
    ({ delivery }) => (delivery === "delivered" ? "Nudged" : `The nudge is ${delivery}`),
  );

/** @param {string} id */
async function nudge(id) {
  const message = await askWords("Nudge", "Message (empty for the default one)", "Nudge");
  if (message !== null) await sendNudge(id, message);
}

/** @param {string} id */
async function interrupt(id) {
  const reason = await askWords("Interrupt", "Reason, for the agent (optional)", "Interrupt");
  if (reason === null) return;
  await attempt(
    () => api.post(`/sessions/${id}/interrupt`, reason ? { reason } : {}),
    () => "Interrupted",
  );
}

const SNOOZES = [
  ["30m", "half an hour"],
  ["2h", "two hours"],
  ["8h", "eight hours"],
  ["1d", "a day"],
  ["off", "end the snooze"],
];

/** @param {string} id */
async function snooze(id) {
  const options = SNOOZES.map(([value, label]) => h("option", { value }, label));
  const choices = h("select", { id: "for" }, options);
  const body = [h("label", { for: "for" }, "Pause the steps against a stall for"), choices];
  const lasts = await ask({ title: "Snooze", body, yes: "Snooze", read: () => choices.value });
  if (!lasts) return;
  await attempt(
    () => api.post(`/sessions/${id}/snooze`, { for: lasts }),
    () => (lasts === "off" ? "Watched again" : `Snoozed for ${lasts}`),
  );
}

/** @param {string} id */
async function stop(id) {
  const body = h("p", {}, "The agent is asked to exit, then its processes are killed. The session can be resumed.");
  if (!(await confirm({ title: "Stop this agent?", body, yes: "Stop", danger: true }))) return;
  await attempt(
    () => api.post(`/sessions/${id}/stop`, {}),
    () => "Stopped",
  );
}

/** @param {string} id */
async function kill(id) {
  const body = h("p", {}, "All of its processes are killed at once. Unsaved work is lost.");
  if (!(await confirm({ title: "Kill this agent?", body, yes: "Kill", danger: true }))) return;
  await attempt(
    () => api.post(`/sessions/${id}/kill`, {}),
    ({ killed }) => `Killed: ${killed} processes`,
  );
}

/** @param {string} id */
const resume = (id) =>
  attempt(
    () => api.post(`/sessions/${id}/resume`, {}),
    () => "Resumed",
  );

/** @type {Array<[string, (id: string) => Promise<void>]>} */
const OPERATOR = [
  ["Nudge…", nudge],
  ["Interrupt…", interrupt],
  ["Snooze…", snooze],
  ["Stop…", stop],
];

/**
 * The buttons that this person may press now.
 *
 * @param {Bind} bind
 * @param {string} id
 */
export function actions(bind, id) {
  const element = h("div", { class: "row tools" });
  const log = { class: "button small", href: `/api/v1/sessions/${id}/log`, download: `${id}.jsonl` };
  bind(
    // Unchanged buttons stay: a button that is replaced under a finger is not pressed, and loses the focus.
    () => ({
      known: state.sessions.has(id),
      ended: ["ended", "parked"].includes(state.sessions.get(id)?.phase ?? ""),
      operator: may(state, "operator"),
      admin: may(state, "admin"),
      start: state.you?.may_start,
    }),
    ({ known, ended, operator, admin, start }) => {
      if (!known) return;
      replace(
        element,
        !ended && operator && OPERATOR.map(([label, act]) => button(label, () => act(id), { class: "small" })),
        !ended && admin && button("Kill…", () => kill(id), { class: "small danger" }),
        ended && start && button("Resume", () => resume(id), { class: "small primary" }),
        h("a", log, "Log"),
      );
    },
  );
  return element;
}
