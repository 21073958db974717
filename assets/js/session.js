// One session: what it waits for, what happened, and what can be done about it.

import * as api from "./api.js";
import { h, button, icon, ask, toast, text, attribute } from "./dom.js";
import { state, on, touch } from "./live.js";
import {
  byRisk,
  group,
  may,
  pendingClearances,
  pendingQuestions,
  progress,
  putSession,
  waitingBySession,
} from "./store.js";
import { back } from "./address.js";
import { clean, cleanBlock, clock, localTimes, project, short, since, span, usage } from "./text.js";
import * as clearances from "./card.js";
import * as questions from "./question.js";
import { checklist } from "./checklist.js";
import { log } from "./timeline.js";
import { box } from "./prompts.js";
import { phaseWord } from "./fleet.js";

async function attempt(work, done) {
  try {
    const answer = await work();
    toast(typeof done === "function" ? done(answer) : done);
    return answer;
  } catch (error) {
    toast(api.why(error), "error");
    return null;
  }
}

const path = (session) => `/sessions/${session}`;

async function withWords(title, label, value, yes) {
  const field = h("textarea", { id: "words", rows: "3", value });
  return ask({ title, body: [h("label", { for: "words" }, label), field], yes, read: () => field.value.trim() });
}

const acts = {
  async nudge(id) {
    const message = await withWords("Nudge", "Say something else than the usual, or nothing", "", "Nudge");
    if (message === null) return;
    await attempt(
      () => api.post(`${path(id)}/nudge`, message ? { message } : {}),
      (told) => (told.delivery === "delivered" ? "Nudged" : `The nudge is ${told.delivery}`),
    );
  },
  async interrupt(id) {
    const reason = await withWords("Interrupt", "Why (the agent is told)", "", "Interrupt");
    if (reason === null) return;
    await attempt(() => api.post(`${path(id)}/interrupt`, reason ? { reason } : {}), "Interrupted");
  },
  async snooze(id) {
    const choices = h(
      "select",
      { id: "for" },
      [
        ["30m", "half an hour"],
        ["2h", "two hours"],
        ["8h", "eight hours"],
        ["1d", "a day"],
        ["off", "not any more"],
      ].map(([value, label]) => h("option", { value }, label)),
    );
    const lasts = await ask({
      title: "Snooze",
      body: [h("label", { for: "for" }, "No steps about a stall for"), choices],
      yes: "Snooze",
      read: () => choices.value,
    });
    if (lasts)
      await attempt(
        () => api.post(`${path(id)}/snooze`, { for: lasts }),
        lasts === "off" ? "Watched again" : `Left in peace for ${lasts}`,
      );
  },
  async stop(id) {
    const sure = await ask({
      title: "Stop this agent?",
      body: [h("p", {}, "It is told first, then its processes are ended. It can be resumed.")],
      yes: "Stop",
      danger: true,
    });
    if (sure) await attempt(() => api.post(`${path(id)}/stop`, {}), "Stopped");
  },
  async kill(id) {
    const sure = await ask({
      title: "Kill this agent?",
      body: [h("p", {}, "Its whole process tree is ended at once. What it has not written is lost.")],
      yes: "Kill",
      danger: true,
    });
    if (sure)
      await attempt(
        () => api.post(`${path(id)}/kill`, {}),
        (ended) => `Killed: ${ended.killed} processes`,
      );
  },
  async resume(id) {
    await attempt(() => api.post(`${path(id)}/resume`, {}), "Started again");
  },
};

function about(session) {
  const rows = [];
  const put = (name, value) => value != null && value !== "" && rows.push(h("dt", {}, name), h("dd", {}, value));
  put("Id", h("span", { class: "mono wrap" }, clean(session.id)));
  put("Agent", session.agent ? clean(session.agent) : null);
  put("Protocol", clean(session.protocol));
  put("Workspace", h("span", { class: "mono wrap" }, clean(session.workspace)));
  put("Process", session.pid);
  put("Generation", session.generation > 1 ? session.generation : null);
  put("Started", session.started_at ? clock(session.started_at) : null);
  put("Ended", session.ended_at ? clock(session.ended_at) : null);
  put("Ladder", session.standing?.ladder);
  put("Snoozed", session.standing?.snoozed_until ? `until ${clock(session.standing.snoozed_until)}` : null);
  put(
    "Running",
    session.standing?.running
      ? `${clean(session.standing.running.name)}, ${since(session.standing.running.since)}`
      : null,
  );
  put("Unenforced", session.unenforced ? clean(session.unenforced) : null);
  put("Used", usage(session.spent));
  put("Capped", session.spent?.capped ? clean(session.spent.capped) : null);
  put("Mode", session.controls?.mode ? clean(session.controls.mode) : null);
  put("Model", session.controls?.model ? clean(session.controls.model) : null);
  if (session.processes?.length)
    put(
      "Processes",
      session.processes
        .map(
          (each) =>
            `${clean(each.name)} (${each.pid}, ${span(each.cpu_seconds * 1000)} CPU, ${Math.round(each.memory_bytes / 1048576)} MB)`,
        )
        .join(", "),
    );
  return h("dl", { class: "facts" }, rows);
}

export function view(id, { write = false } = {}) {
  const name = h("h1", {});
  const dot = h("span", { class: "dot", "aria-hidden": "true" });
  const phase = h("span", { class: "phase" });
  const why = h("p", { class: "why" });
  const failure = h("p", { class: "failure", role: "status", hidden: true });
  const tools = h("div", { class: "row tools" });
  const open = h("section", { class: "open", "aria-label": "Waiting for you" });
  const [cards, asked] = [h("div", { class: "cards" }), h("div", { class: "cards" })];
  open.append(h("div", { class: "deck" }, cards, asked));
  const side = h("aside", { class: "side", "aria-label": "About this session" });
  const plan = h("section", { class: "panel" });
  const facts = h("section", { class: "panel" });
  const stderr = h("section", { class: "panel" });
  side.append(open, plan, facts, stderr);
  const timeline = log(id);
  const composer = box(id);
  const jump = button("", () => open.querySelector(".card:not(.settled)")?.focus(), { class: "primary jump" });
  const body = h(
    "div",
    { class: "session-body" },
    h("div", { class: "main-column" }, timeline.element, composer.element),
    side,
  );
  const element = h(
    "div",
    { class: "page session-page" },
    jump,
    h(
      "header",
      { class: "session-head" },
      h(
        "div",
        { class: "row" },
        h("a", { class: "back", href: "#/", "aria-label": "Back", onclick: back }, icon("back")),
        dot,
        name,
        phase,
        h("span", { class: "grow" }),
        tools,
      ),
      why,
      failure,
    ),
    body,
  );
  const arrived = new Set();
  // Offered only while what waits is out of sight.
  let seen = true;
  const eye = new IntersectionObserver(([entry]) => {
    seen = entry.isIntersecting;
    draw();
  });
  eye.observe(open);
  let toolsFor = "";
  let factsFor = "";

  function drawTools(session) {
    const ended = ["ended", "parked"].includes(session.phase);
    // What is the same stays: a button that is replaced under a finger is not pressed, and loses the focus.
    const version = `${ended} ${state.you?.role} ${state.you?.may_start}`;
    if (version === toolsFor) return;
    toolsFor = version;
    const parts = [];
    if (!ended && may(state, "operator")) {
      for (const [act, label] of [
        ["nudge", "Nudge…"],
        ["interrupt", "Interrupt…"],
        ["snooze", "Snooze…"],
        ["stop", "Stop…"],
      ])
        parts.push(button(label, () => acts[act](id), { class: "small" }));
      if (may(state, "admin")) parts.push(button("Kill…", () => acts.kill(id), { class: "small danger" }));
    }
    if (ended && state.you?.may_start) parts.push(button("Resume", () => acts.resume(id), { class: "small primary" }));
    parts.push(h("a", { class: "button small", href: `/api/v1/sessions/${id}/log`, download: `${id}.jsonl` }, "Log"));
    tools.replaceChildren(...parts);
  }

  let [shown, told] = [null, null];

  /** A failure is seen once an operator has this page before their eyes; it stays here until the agent works again. */
  function drawFailure(session) {
    if (["working", "waiting"].includes(session.phase)) shown = null;
    else if (session.failed) shown = session.failed;
    failure.hidden = !shown;
    text(failure, shown ? localTimes(`Failed: ${clean(shown.reason)}. What to do: ${clean(shown.hint)}`) : "");
    if (!session.failed || session.failed.at === told || document.hidden || !may(state, "operator")) return;
    told = session.failed.at;
    api.post(`${path(id)}/seen`, { at: told }).then(
      (view) => (putSession(state, view), touch()),
      (error) => toast(api.why(error), "error"),
    );
  }

  function draw() {
    const session = state.sessions.get(id);
    if (!session) return;
    drawFailure(session);
    const waits = waitingBySession(state).get(id);
    const row = { session, waits, group: group(session, waits) };
    text(name, session.name ? clean(session.name) : short(session.id));
    attribute(dot, "class", `dot ${row.group}`);
    text(phase, `${phaseWord(row)} ${since(waits?.since ?? session.since)}`);
    const done = session.standing?.done;
    const parts = [
      localTimes(session.why),
      session.why.includes(done) ? null : done,
      session.unenforced ? `unenforced: ${session.unenforced}` : null,
    ];
    const used = usage(session.spent);
    text(why, [project(session.workspace), ...parts.filter(Boolean).map(clean), used].filter(Boolean).join(" · "));
    drawTools(session);
    const [pending, questioned] = [pendingClearances(state, id), pendingQuestions(state, id)];
    pending.forEach((each) => arrived.add(each.id));
    questioned.forEach((each) => arrived.add(each.id));
    // A settled card stays for a while, below the others: one sees what became of it.
    const stays = (each) =>
      each.status === "pending" ||
      (arrived.has(each.id) && Date.now() - Date.parse(each.decided_at ?? each.answered_at ?? 0) < 15000);
    const total = pending.length + questioned.length;
    const mine = [...state.clearances.values()].filter((each) => each.session === id && stays(each)).sort(byRisk);
    const mineToo = [...state.questions.values()].filter((each) => each.session === id && stays(each));
    clearances.cards(cards, mine, { link: false });
    questions.cards(asked, mineToo, { link: false });
    // On a small screen the buttons of the first one stay in view, wherever one reads.
    const first = pending[0]?.id ?? questioned[0]?.id;
    for (const card of open.querySelectorAll(".card")) card.classList.toggle("current", card.dataset.id === first);
    open.hidden = !(mine.length + mineToo.length);
    body.classList.toggle("deciding", !open.hidden);
    jump.hidden = total === 0 || seen;
    text(jump, total === 1 ? "1 waits for you" : `${total} wait for you`);
    const made = progress(session);
    plan.hidden = !made;
    const version = JSON.stringify([
      session.progress,
      session.phase,
      session.pid,
      session.standing,
      session.processes,
      session.stderr_tail,
      session.unenforced,
      session.spent,
    ]);
    if (version !== factsFor) {
      factsFor = version;
      if (made)
        plan.replaceChildren(
          h("h2", {}, `Plan ${made.done}/${made.of}`),
          h("progress", { max: made.of, value: made.done, "aria-label": "Progress" }),
          checklist(made.steps),
        );
      facts.replaceChildren(h("h2", {}, "About"), about(session));
      stderr.hidden = !session.stderr_tail?.trim();
      stderr.replaceChildren(
        h("h2", {}, "stderr"),
        h("pre", { class: "stderr", tabindex: "0" }, cleanBlock(session.stderr_tail ?? "")),
      );
    }
  }

  async function refresh() {
    try {
      putSession(state, await api.get(path(id)));
      touch();
    } catch (error) {
      if (error.status === 404)
        element.replaceChildren(
          h(
            "div",
            { class: "empty" },
            h("p", {}, "There is no such session."),
            h("a", { href: "#/" }, "Back to the fleet"),
          ),
        );
    }
  }
  element.addEventListener("keydown", (event) => {
    if (
      event.key === "i" &&
      may(state, "operator") &&
      !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) &&
      !event.ctrlKey &&
      !event.metaKey
    ) {
      event.preventDefault();
      composer.focus();
    }
  });
  draw();
  refresh();
  const off = on("change", draw);
  const tick = setInterval(draw, 1000);
  const look = setInterval(() => !document.hidden && refresh(), 15000);
  if (write && may(state, "operator")) setTimeout(() => composer.focus());
  return {
    element,
    get title() {
      return clean(state.sessions.get(id)?.name ?? short(id));
    },
    close() {
      off();
      clearInterval(tick);
      clearInterval(look);
      eye.disconnect();
      timeline.close();
      composer.close();
    },
  };
}
