// @ts-check
// All pending requests, the riskiest first, and those that were decided a moment ago.

import { pageBindings } from "./page.js";
import { h, text } from "./dom.js";
import { state } from "./live.js";
import { byRisk, pendingClearances, pendingQuestions, waiting } from "./store.js";
import { cards as clearanceCards } from "./card.js";
import { cards as questionCards } from "./question.js";
/** @import { Question, View } from "../types/models" */

/** @type {(a: Question, b: Question) => number} */
const byTime = (a, b) => a.asked_at.localeCompare(b.asked_at);

/** @returns {View} */
export function view() {
  /** @type {Set<string>} */
  const arrived = new Set();
  const list = h("div", { class: "cards" });
  const asked = h("div", { class: "cards" });
  const summary = h("p", { class: "faint" });
  const empty = h(
    "div",
    { class: "empty" },
    h("p", {}, "Nothing is waiting for you."),
    h("p", { class: "faint" }, "New requests of agents appear here immediately."),
  );
  const { bind, close } = pageBindings(5000);
  bind(
    () => {
      for (const { id } of [...pendingClearances(state), ...pendingQuestions(state)]) arrived.add(id);
      // Requests that were pending on this page stay when they are settled, below the pending ones.
      return {
        clearances: [...state.clearances.values()].filter((each) => arrived.has(each.id)).sort(byRisk),
        questions: [...state.questions.values()].filter((each) => arrived.has(each.id)).sort(byTime),
      };
    },
    ({ clearances, questions }) => {
      clearanceCards(list, clearances);
      questionCards(asked, questions);
      const [total, count] = [clearances.length + questions.length, waiting(state)];
      empty.hidden = total > 0;
      text(summary, total ? `${count} waiting${total > count ? `, ${total - count} settled` : ""}` : "");
    },
  );
  const deck = h("div", { class: "deck" }, list, asked);
  const element = h("div", { class: "page narrow" }, h("h1", {}, "Clearances"), summary, deck, empty);
  return { element, title: "Clearances", close };
}
