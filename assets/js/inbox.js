// Everything that waits for an answer, the riskiest first, and what was decided a moment ago.

import { h, text } from "./dom.js";
import { state, on } from "./live.js";
import { byRisk, pendingClearances, pendingQuestions } from "./store.js";
import * as clearances from "./card.js";
import * as questions from "./question.js";

export function view() {
  const arrived = new Set();
  const list = h("div", { class: "cards" });
  const asked = h("div", { class: "cards" });
  const summary = h("p", { class: "faint" });
  const empty = h(
    "div",
    { class: "empty" },
    h("p", {}, "Nothing waits for you."),
    h("p", { class: "faint" }, "This page shows what agents ask as soon as they ask it."),
  );
  const element = h(
    "div",
    { class: "page narrow" },
    h("h1", {}, "Clearances"),
    summary,
    h("div", { class: "deck" }, list, asked),
    empty,
  );
  function draw() {
    const [open, ask] = [pendingClearances(state), pendingQuestions(state)];
    open.forEach((each) => arrived.add(each.id));
    ask.forEach((each) => arrived.add(each.id));
    // What was open while we looked stays once it is settled, below what still waits.
    const shown = [...state.clearances.values()].filter((each) => arrived.has(each.id)).sort(byRisk);
    const questioned = [...state.questions.values()]
      .filter((each) => arrived.has(each.id))
      .sort((a, b) => a.asked_at.localeCompare(b.asked_at));
    clearances.cards(list, shown);
    questions.cards(asked, questioned);
    empty.hidden = shown.length + questioned.length > 0;
    const count = open.length + ask.length;
    text(
      summary,
      empty.hidden
        ? `${count} waiting${shown.length + questioned.length > count ? `, ${shown.length + questioned.length - count} settled` : ""}`
        : "",
    );
  }
  draw();
  const off = on("change", draw);
  const tick = setInterval(draw, 5000);
  return { element, title: "Clearances", close: () => (off(), clearInterval(tick)) };
}
