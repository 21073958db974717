// The clearance card: what is asked, how risky it is and why, the change itself, and the decision.

import * as api from "./api.js";
import { h, attribute, button, ask, toast, announce, keyed, single } from "./dom.js";
import { explain, state, touch } from "./live.js";
import { may, putClearance, RANK } from "./store.js";
import { clean, cleanBlock, clock, line, localTimes, project, short, since } from "./text.js";
import { render as renderDiff } from "./diffview.js";
import { renderLong } from "./markdown.js";
import { onTheWay } from "./keys.js";

/** How long a risky button is held, and how long a first press of a key waits for the second. */
const HOLD = 900;
const SECOND = 4000;
const HELD = "This is risky: keep the button pressed until it is filled";

const risky = (clearance) => RANK[clearance.risk] >= RANK.high;

const deciding = new Set();

/** Decides, once, also with a double click; whoever was faster is named at once. */
async function decide(clearance, body) {
  if (deciding.has(clearance.id)) return;
  deciding.add(clearance.id);
  const key = `web-${clearance.id}-${crypto.randomUUID()}`;
  try {
    const answer = await api.post(`/clearances/${clearance.id}/decision`, body, key);
    const now = answer.clearance ?? answer;
    putClearance(state, now);
    if (now.status === "pending") toast(`${now.approvals.length} of ${now.needed} approvals`);
    else toast(`${now.status === "approved" ? "Allowed" : "Denied"}: ${line(now)}`);
  } catch (error) {
    if (error.body?.clearance) putClearance(state, error.body.clearance);
    if (error.code === "already_decided") toast(`Too late: ${localTimes(error.message)}`);
    else if (error.code === "option_required") return choose(clearance, body);
    else toast(api.why(error), "error");
  } finally {
    deciding.delete(clearance.id);
    touch();
  }
}

/** Where the agent offers several ways, one has to be chosen. */
async function choose(clearance, body) {
  const wanted = body.decision === "approve" ? "allow" : "reject";
  const options = clearance.options.filter((option) => option.kind.startsWith(wanted));
  const fields = options.map((option, n) =>
    h(
      "label",
      { class: "choice" },
      h("input", { type: "radio", name: "option", value: option.id, checked: n === 0 }),
      ` ${clean(option.name)}`,
    ),
  );
  const picked = await ask({
    title: "How?",
    body: fields,
    yes: body.decision === "approve" ? "Allow" : "Deny",
    read: (form) => new FormData(form).get("option"),
  });
  if (picked) await decide(clearance, { ...body, option: picked });
}

export async function denyWithReason(clearance) {
  const field = h("textarea", { id: "reason", rows: "3", required: true });
  const body = [h("label", { for: "reason" }, "The agent is told"), field];
  const reason = await ask({
    title: `Deny: ${line(clearance)}`,
    body,
    yes: "Deny",
    danger: true,
    read: () => field.value.trim(),
  });
  if (reason) await decide(clearance, { decision: "deny", reason });
}

/** Shows the rule that would be stored, and for how long, before anything is. */
export async function always(clearance) {
  let found;
  try {
    found = await explain(clearance.id);
  } catch (error) {
    return toast(api.why(error), "error");
  }
  if (!found.proposal) return toast(`No safe rule can be made of it: ${clean(found.no_proposal ?? "")}`, "error");
  const lasts = h(
    "select",
    { id: "lasts" },
    // The narrowest first: it is what is chosen unless somebody wants more.
    [
      ["1h", "for an hour"],
      ["8h", "for eight hours"],
      ["7d", "for a week"],
      ["", "until it is revoked"],
    ].map(([value, label]) => h("option", { value }, label)),
  );
  const rule = Object.entries(found.proposal).filter(
    ([, value]) => value != null && !(Array.isArray(value) && !value.length),
  );
  const body = [
    h("p", {}, "From now on this is allowed without asking:"),
    h(
      "dl",
      { class: "rule" },
      rule.map(([name, value]) => [
        h("dt", {}, clean(name)),
        h("dd", { class: "mono wrap" }, clean(typeof value === "object" ? JSON.stringify(value) : String(value))),
      ]),
    ),
    h("label", { for: "lasts" }, "How long"),
    lasts,
    risky(clearance) ? h("p", { class: "trouble" }, `This is of ${clearance.risk} risk.`) : null,
  ];
  const sure = await ask({
    title: "Allow always?",
    body,
    yes: "Allow always",
    danger: risky(clearance),
    read: () => ({ rule: found.proposal, for: lasts.value || null }),
  });
  if (sure) await decide(clearance, { decision: "approve", remember: sure });
}

export async function nudge(session) {
  try {
    const told = await api.post(`/sessions/${session}/nudge`, {});
    toast(told.delivery === "delivered" ? "Nudged" : `The nudge is ${told.delivery}`);
  } catch (error) {
    toast(api.why(error), "error");
  }
}

/** A button that has to be held, or pressed twice where holding is not possible. */
function guarded(label, act) {
  const fill = h("span", { class: "fill", "aria-hidden": "true" });
  const words = h("span", {}, label);
  const element = h(
    "button",
    { type: "button", class: "primary hold", "aria-description": "Hold it, or press it twice" },
    fill,
    words,
  );
  const hint = h("span", { class: "bubble", hidden: true }, HELD);
  let timer = null;
  let armed = 0;
  let holding = null;
  const stop = () => {
    clearTimeout(timer);
    holding?.abort();
    element.classList.remove("held");
  };
  let hiding = null;
  const tell = () => {
    if (done) return;
    hint.hidden = false;
    announce(HELD);
    clearTimeout(hiding);
    hiding = setTimeout(() => (hint.hidden = true), SECOND);
  };
  let done = false;
  const run = () => {
    hint.hidden = true;
    stop();
    // What was taken from under the finger is not what it was put on.
    if (!element.isConnected) return;
    done = true;
    element.disabled = true;
    act().finally(() => {
      element.disabled = false;
      done = false;
    });
  };
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || done) return;
    stop();
    element.classList.add("held");
    timer = setTimeout(run, HOLD);
    holding = new AbortController();
    const { signal } = holding;
    element.addEventListener("pointerleave", stop, { signal });
    // A release is heard wherever it happens, also if the card has moved meanwhile.
    addEventListener("pointercancel", stop, { capture: true, signal });
    // The window's own; the press itself takes the focus from something else.
    addEventListener("blur", stop, { signal });
    addEventListener("pointerup", () => (stop(), tell()), { capture: true, signal });
  });
  // A key that is held is one press.
  element.addEventListener("keydown", (event) => event.repeat && event.preventDefault());
  // A click without a pointer is a key or a screen reader: the second one counts.
  const press = () => {
    if (done) return;
    if (Date.now() - armed < SECOND) {
      armed = 0;
      run();
      return;
    }
    armed = Date.now();
    words.textContent = `${label}: press again`;
    announce("Risky: press again to allow");
    setTimeout(() => (words.textContent = label), SECOND);
  };
  element.addEventListener("click", (event) => event.detail === 0 && press());
  element.addEventListener("contextmenu", (event) => event.preventDefault());
  return { element: h("span", { class: "holder" }, element, hint), press };
}

const FATE = { approved: "Allowed", denied: "Denied", withdrawn: "Withdrawn", expired: "Expired" };

/** Who decided, whether it arrived, what came of it. */
export function fate(clearance) {
  const word = FATE[clearance.status] ?? clean(clearance.status);
  const by = clearance.decided_by ? ` by ${clean(clearance.decided_by)}` : "";
  const at = clearance.decided_at ? ` ${clock(clearance.decided_at)}` : "";
  const steps = [`${word}${by}${at}`];
  if (["approved", "denied"].includes(clearance.status)) {
    if (clearance.delivery === "delivered") steps.push("delivered");
    else if (clearance.delivery === "failed")
      steps.push(`NOT delivered${clearance.delivery_cause ? `: ${clean(clearance.delivery_cause)}` : ""}`);
    else steps.push("on its way");
  }
  if (clearance.outcome) steps.push(clean(clearance.outcome));
  return steps;
}

export const badge = (risk) => h("span", { class: `badge ${risk}` }, risk);

function facts(clearance) {
  const rows = [];
  const put = (name, value) => value && rows.push(h("dt", {}, name), h("dd", {}, value));
  if (clearance.command) put("Command", h("code", { class: "command", tabindex: "0" }, cleanBlock(clearance.command)));
  if (clearance.file_path)
    put(
      clearance.more_paths?.length ? "Files" : "File",
      h("span", { class: "mono wrap" }, [clearance.file_path, ...(clearance.more_paths ?? [])].map(clean).join(", ")),
    );
  if (clearance.tool) put("Tool", clean(clearance.tool));
  if (clearance.risk_why?.length) put("Why", clearance.risk_why.map(clean).join("; "));
  if (clearance.claimed_risk && clearance.claimed_risk !== clearance.risk)
    put("Claimed", `${clean(clearance.claimed_risk)} by the agent`);
  if (clearance.ruling) put("Policy", clean(clearance.ruling.why));
  if (clearance.needed > 1)
    put(
      "Approvals",
      `${clearance.approvals.length} of ${clearance.needed}${clearance.approvals.length ? ` (${clearance.approvals.map(clean).join(", ")})` : ""}`,
    );
  if (clearance.hidden?.length) put("Hidden", `from viewers: ${clearance.hidden.map(clean).join(", ")}`);
  return h("dl", { class: "facts", hidden: !rows.length }, rows);
}

/** Why this person may not approve it, in words; nothing if they may. */
function barred(clearance) {
  if (clearance.explained?.may_not_approve)
    return `You cannot approve this: ${clean(clearance.explained.may_not_approve)}`;
  return clearance.approvals.includes(state.you?.name) ? "You have approved it; it needs somebody else as well" : null;
}

/** The buttons. What this person may not do, and a rule that cannot be made, are not offered. */
function actions(clearance) {
  if (!may(state, "approver"))
    return {
      element: h("p", { class: "faint" }, `Deciding needs the role approver; you are ${state.you?.role}.`),
      press: {},
    };
  const approve = () => decide(clearance, { decision: "approve" });
  const deny = () => decide(clearance, { decision: "deny" });
  const reason = () => denyWithReason(clearance);
  const why = barred(clearance);
  const guard = risky(clearance) && !why ? guarded("Hold to allow", approve) : null;
  const allow = guard?.element ?? button("Allow once", single(approve), { class: "primary" });
  const remember = clearance.explained?.proposal && !why ? () => always(clearance) : null;
  const no = clean(clearance.explained?.no_proposal ?? "");
  const element = h(
    "div",
    { class: "row actions" },
    why ? h("p", { class: "faint" }, why) : allow,
    remember ? button("Always…", single(remember)) : null,
    h("span", { class: "grow" }),
    button("Deny", single(deny), { class: "danger" }),
    button("Deny with reason…", single(reason)),
  );
  const allowing = why ? { a: () => toast(why) } : { a: guard?.press ?? approve };
  return {
    element,
    press: { ...allowing, A: remember ?? (() => toast(why ?? `No rule can be created: ${no}`)), d: deny, r: reason },
  };
}

/** What is asked, whole: in words, the command or the paths, and the change. */
export const whole = (clearance) => [
  clearance.description ? h("div", { class: "description" }, renderLong(clearance.description)) : null,
  facts(clearance),
  clearance.diff ? renderDiff(clearance.diff, clearance.file_path) : null,
];

/** Tells a card, once, that the reader gets near to it. */
const near = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      target.comesNear();
    }
  },
  { rootMargin: "800px" },
);

/** The room that the buttons and a head take at the lower edge. */
const EDGE = 220;
/** Keeps the buttons of a long card in view, with its subject if its head is not; never over the head itself. */
const heads = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const above = !isIntersecting && boundingClientRect.top < EDGE;
      target.foot.classList.toggle("stuck", isIntersecting || above);
      target.foot.classList.toggle("far", above);
    }
  },
  { rootMargin: `0px 0px -${EDGE}px` },
);

/** One card. `update` keeps it as the clearance is now, and leaves alone what has not changed. */
export function card(clearance, { link = true } = {}) {
  const session = () => state.sessions.get(clearance.session);
  const where = h("span", { class: "where" });
  const age = h("span", { class: "age faint" });
  const outcome = h("div", { class: "outcome", hidden: true });
  const buttons = h("div", {});
  const subject = h("p", { class: "subject" }, badge(clearance.risk), h("span", { class: "clip" }, line(clearance)));
  const foot = h("div", { class: "foot" }, subject, buttons);
  const head = h("header", {}, badge(clearance.risk), h("h3", { class: "title" }, clean(clearance.title)), age);
  head.foot = foot;
  const content = h("div", { class: "content" });
  const element = h(
    "article",
    {
      class: `card risk-${clearance.risk}`,
      tabindex: "0",
      data: { stop: "card", id: clearance.id },
      "aria-label": `Clearance, ${clearance.risk} risk: ${line(clearance)}`,
    },
    head,
    h("div", { class: "sub faint" }, where, h("span", { class: "mono" }, short(clearance.id))),
    content,
    outcome,
    foot,
  );
  let shown = null;
  let filled = null;
  let press = {};
  // The list that the page began with has no changes in it: each is fetched when one gets there.
  element.comesNear = async () => {
    if (clearance.explained) return;
    try {
      await explain(clearance.id);
    } catch (error) {
      if (!clearance.brief) return;
      const again = button("Try again", () => element.comesNear(), { class: "small" });
      buttons.replaceChildren(
        h("p", { class: "trouble" }, `The request could not be loaded: ${api.why(error)} `),
        again,
      );
    }
  };
  near.observe(element);
  heads.observe(head);
  const fill = () => {
    // The facts change as others approve; a diff that somebody has opened stays as it is.
    if (filled !== null && filled === clearance.brief) {
      content.querySelector(".facts").replaceWith(facts(clearance));
      return;
    }
    filled = clearance.brief;
    content.replaceChildren(...whole(clearance).filter(Boolean));
  };
  const update = (now) => {
    clearance = now;
    const { name: called, workspace, agent } = session() ?? {};
    const name = called ? clean(called) : short(clearance.session);
    const text = `${project(workspace)} · ${agent ? `${clean(agent)} · ` : ""}`;
    where.replaceChildren(text, link ? h("a", { href: `#/s/${clearance.session}` }, name) : name, " · ");
    const left =
      clearance.expires_at && clearance.status === "pending"
        ? `, ${since(new Date().toISOString(), Date.parse(clearance.expires_at))} left`
        : "";
    age.textContent = clearance.status === "pending" ? `waits ${since(clearance.requested_at)}${left}` : "";
    const version = JSON.stringify([
      clearance.status,
      clearance.delivery,
      clearance.outcome,
      clearance.approvals,
      clearance.reason,
      clearance.brief,
      clearance.explained?.proposal != null,
      clearance.explained?.may_not_approve,
      state.you?.role,
    ]);
    if (version === shown) return;
    const first = shown === null;
    shown = version;
    fill();
    const open = clearance.status === "pending";
    element.classList.toggle("settled", !open);
    attribute(element, "aria-busy", clearance.brief ? "true" : null);
    outcome.hidden = open;
    const focused = foot.contains(document.activeElement);
    foot.hidden = !open;
    if (open) {
      // Nobody decides what they do not see yet.
      const made = clearance.brief
        ? { element: h("p", { class: "faint" }, "Loading…"), press: {} }
        : actions(clearance);
      press = made.press;
      buttons.replaceChildren(made.element);
      if (focused) element.focus({ preventScroll: true });
      return;
    }
    press = {};
    outcome.replaceChildren(
      h(
        "ol",
        { class: `fate ${clearance.status}` },
        fate(clearance).map((step) => h("li", {}, step)),
      ),
      clearance.reason ? h("p", { class: "reason" }, clean(clearance.reason)) : "",
    );
    if (focused) element.focus({ preventScroll: true });
    if (!first) announce(`${line(clearance)}: ${fate(clearance)[0]}`);
  };
  element.addEventListener("keydown", (event) => {
    if (event.target !== element || event.ctrlKey || event.metaKey || event.altKey || onTheWay() || event.repeat)
      return;
    const more = {
      n: () => may(state, "operator") && nudge(clearance.session),
      i: () => may(state, "operator") && (location.hash = `#/s/${clearance.session}/write`),
      o: () => (location.hash = `#/s/${clearance.session}`),
      Enter: () => (location.hash = `#/s/${clearance.session}`),
    };
    const act = press[event.key] ?? more[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  update(clearance);
  return { element, update };
}

/** A list of cards that is kept as things are. Decided ones stay for a while, so that one sees what became of them. */
export function cards(parent, list, options) {
  keyed(
    parent,
    list,
    (each) => each.id,
    (each) => card(each, options),
    (entry, each) => entry.update(each),
  );
}
