// A question of an agent: go on, go on differently, or stop.

import * as api from "./api.js";
import { h, button, ask, toast, keyed, single } from "./dom.js";
import { state, touch } from "./live.js";
import { may, putQuestion } from "./store.js";
import { clean, clock, cut, localTimes, project, short, since } from "./text.js";
import { renderLong } from "./markdown.js";

const answering = new Set();

async function answer(question, body) {
  if (answering.has(question.id)) return;
  answering.add(question.id);
  try {
    putQuestion(state, await api.post(`/questions/${question.id}/answer`, body));
    toast(`Answered: ${body.decision}`);
  } catch (error) {
    if (error.body?.question) putQuestion(state, error.body.question);
    toast(
      error.code === "already_decided" ? `Too late: ${localTimes(error.message)}` : api.why(error),
      error.code === "already_decided" ? "info" : "error",
    );
  }
  answering.delete(question.id);
  touch();
}

async function refine(question) {
  const field = h("textarea", { id: "instruction", rows: "4", required: true });
  const body = [h("label", { for: "instruction" }, "How it should go on"), field];
  const instruction = await ask({ title: "Go on, but differently", body, yes: "Send", read: () => field.value.trim() });
  if (instruction) await answer(question, { decision: "refine", instruction });
}

function card(question, { link = true } = {}) {
  const where = h("span", { class: "where" });
  const age = h("span", { class: "age faint" });
  const foot = h("div", { class: "foot" });
  const element = h(
    "article",
    {
      class: "card question",
      tabindex: "0",
      data: { stop: "card", id: question.id },
      "aria-label": `Question: ${clean(question.text).slice(0, 120)}`,
    },
    h("header", {}, h("span", { class: "badge ask" }, "question"), h("h3", { class: "title" }, "How to go on?"), age),
    h("div", { class: "sub faint" }, where, h("span", { class: "mono" }, short(question.id))),
    h("div", { class: "description" }, renderLong(question.text)),
    foot,
  );
  let shown = null;
  const update = (now) => {
    question = now;
    const session = state.sessions.get(question.session);
    const name = session?.name ? clean(session.name) : short(question.session);
    where.replaceChildren(
      `${project(session?.workspace)} · `,
      link ? h("a", { href: `#/s/${question.session}` }, name) : name,
      " · ",
    );
    age.textContent = question.status === "pending" ? `waits ${since(question.asked_at)}` : "";
    const version = `${question.status} ${state.you?.role}`;
    if (version === shown) return;
    shown = version;
    element.classList.toggle("settled", question.status !== "pending");
    if (question.status !== "pending") {
      const by = question.answered_by ? ` by ${clean(question.answered_by)} ${clock(question.answered_at)}` : "";
      const focused = foot.contains(document.activeElement);
      foot.replaceChildren(
        h(
          "ol",
          { class: "fate" },
          h("li", {}, `${clean(question.decision ?? question.status)}${by}`),
          question.instruction ? h("li", {}, clean(question.instruction)) : null,
        ),
      );
      if (focused) element.focus({ preventScroll: true });
    } else if (may(state, "operator")) {
      foot.replaceChildren(
        h(
          "p",
          { class: "subject" },
          h("span", { class: "badge ask" }, "question"),
          h("span", { class: "clip" }, clean(cut(question.text, 200))),
        ),
        h(
          "div",
          { class: "row actions" },
          button(
            "Continue",
            single(() => answer(question, { decision: "continue" })),
            { class: "primary" },
          ),
          button(
            "Refine…",
            single(() => refine(question)),
          ),
          h("span", { class: "grow" }),
          button(
            "Stop",
            single(() => answer(question, { decision: "stop" })),
            { class: "danger" },
          ),
        ),
      );
    } else
      foot.replaceChildren(
        h("p", { class: "faint" }, `Answering needs the role operator; you are ${state.you?.role}.`),
      );
  };
  element.addEventListener("keydown", (event) => {
    if (event.target !== element || !["Enter", "o", "i"].includes(event.key)) return;
    if (event.key === "i" && !may(state, "operator")) return;
    event.preventDefault();
    location.hash = `#/s/${question.session}${event.key === "i" ? "/write" : ""}`;
  });
  update(question);
  return { element, update };
}

export function cards(parent, list, options) {
  keyed(
    parent,
    list,
    (each) => each.id,
    (each) => card(each, options),
    (entry, each) => entry.update(each),
  );
}
