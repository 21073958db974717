// @ts-check
// The requests of one session that are pending or were decided a moment ago.

import { cards as clearanceCards } from "../card.js";
import { h, button, text } from "../dom.js";
import { state } from "../live.js";
import { cards as questionCards } from "../question.js";
import { byRisk, pendingClearances, pendingQuestions } from "../store.js";
/** @import { Clearance, Question } from "../../types/models" */
/** @import { Bind } from "../bind.js" */

/** A settled card stays for a while, below the others, so that its outcome is visible. */
const STAYS = 15000;

/**
 * @template {Clearance | Question} Request
 * @param {Map<string, Request>} all
 * @param {string} session
 * @param {Set<string>} arrived those that were pending while the page was open
 * @param {(request: Request) => string | null} settledAt
 */
function shownOf(all, session, arrived, settledAt) {
  const own = [...all.values()].filter((each) => each.session === session);
  for (const { id, status } of own) if (status === "pending") arrived.add(id);
  const isRecent = (/** @type {Request} */ each) => Date.now() - Date.parse(settledAt(each) ?? "1970-01-01") < STAYS;
  return own.filter((each) => each.status === "pending" || (arrived.has(each.id) && isRecent(each)));
}

/**
 * @param {Bind} bind
 * @param {() => void} draw
 * @param {string} id
 */
export function requests(bind, draw, id) {
  const [cards, asked] = [h("div", { class: "cards" }), h("div", { class: "cards" })];
  const label = "Waiting for you";
  const element = h("section", { class: "open", "aria-label": label }, h("div", { class: "deck" }, cards, asked));
  /** @type {Set<string>} */
  const arrived = new Set();
  bind(
    // Each card compares itself with its model.
    () => ({
      clearances: shownOf(state.clearances, id, arrived, (each) => each.decided_at).sort(byRisk),
      questions: shownOf(state.questions, id, arrived, (each) => each.answered_at),
    }),
    ({ clearances, questions }) => {
      clearanceCards(cards, clearances, { link: false });
      questionCards(asked, questions, { link: false });
      element.hidden = !(clearances.length + questions.length);
      // On a small screen the buttons of the first card stay in view at any scroll position.
      const first = [...pendingClearances(state, id), ...pendingQuestions(state, id)][0]?.id;
      for (const card of element.querySelectorAll(".card"))
        card.classList.toggle("current", card instanceof HTMLElement && card.dataset.id === first);
    },
  );
  return { element, ...jumpTo(bind, draw, element, id) };
}

/**
 * A button that leads to the pending requests, shown only while they are out of sight.
 *
 * @param {Bind} bind
 * @param {() => void} draw
 * @param {HTMLElement} place
 * @param {string} id
 */
function jumpTo(bind, draw, place, id) {
  const act = () => {
    const card = place.querySelector(".card:not(.settled)");
    if (card instanceof HTMLElement) card.focus();
  };
  const jump = button("", act, { class: "primary jump" });
  let seen = true;
  const eye = new IntersectionObserver(([entry]) => {
    seen = entry.isIntersecting;
    draw();
  });
  eye.observe(place);
  bind(
    () => ({ seen, total: pendingClearances(state, id).length + pendingQuestions(state, id).length }),
    ({ seen, total }) => {
      jump.hidden = total === 0 || seen;
      text(jump, total === 1 ? "1 request waiting" : `${total} requests waiting`);
    },
  );
  return { jump, close: () => eye.disconnect() };
}
