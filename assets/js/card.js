// The clearance card: what is asked, how risky it is and why, the change itself, and the decision.

import * as api from "./api.js";
import { h, button, ask, toast, announce, keyed } from "./dom.js";
import { state, touch } from "./live.js";
import { may, putClearance, RANK } from "./store.js";
import { clean, cleanBlock, clock, project, short, since } from "./text.js";
import { render as renderDiff } from "./diffview.js";
import { renderLong } from "./markdown.js";
import { onTheWay } from "./keys.js";

/** How long a risky button is held, and how long a first press of a key waits for the second. */
const HOLD = 900;
const SECOND = 4000;

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
    else toast(`${now.status === "approved" ? "Allowed" : "Denied"}: ${clean(now.title)}`);
  } catch (error) {
    if (error.body?.clearance) putClearance(state, error.body.clearance);
    if (error.code === "already_decided") toast(`Too late: ${error.message}`);
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
    title: `Deny: ${clean(clearance.title)}`,
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
    found = await api.get(`/clearances/${clearance.id}/explanation`);
  } catch (error) {
    return toast(api.why(error), "error");
  }
  if (!found.proposal) return toast(`No safe rule can be made of it: ${clean(found.no_proposal ?? "")}`, "error");
  const lasts = h(
    "select",
    { id: "lasts" },
    [
      ["", "until it is revoked"],
      ["1h", "for an hour"],
      ["8h", "for eight hours"],
      ["7d", "for a week"],
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
  let timer = null;
  let armed = 0;
  let holding = null;
  const stop = () => {
    clearTimeout(timer);
    holding?.abort();
    element.classList.remove("held");
  };
  let done = false;
  const run = () => {
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
    for (const name of ["pointerup", "pointercancel", "blur"]) addEventListener(name, stop, { capture: true, signal });
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
  return { element, press };
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

function actions(clearance) {
  if (!may(state, "approver"))
    return {
      element: h("p", { class: "faint" }, `Deciding needs the role approver; you are ${state.you?.role}.`),
      press: {},
    };
  const approve = () => decide(clearance, { decision: "approve" });
  const deny = () => decide(clearance, { decision: "deny" });
  const guard = risky(clearance) ? guarded("Hold to allow", approve) : null;
  const allow = guard ? guard.element : button("Allow once", approve, { class: "primary" });
  const element = h(
    "div",
    { class: "row actions" },
    allow,
    button("Always…", () => always(clearance)),
    h("span", { class: "grow" }),
    button("Deny", deny, { class: "danger" }),
    button("Deny with reason…", () => denyWithReason(clearance)),
  );
  return {
    element,
    press: {
      a: guard ? guard.press : approve,
      A: () => always(clearance),
      d: deny,
      r: () => denyWithReason(clearance),
    },
  };
}

/** One card. `update` keeps it as the clearance is now, and leaves alone what has not changed. */
export function card(clearance, { link = true } = {}) {
  const session = () => state.sessions.get(clearance.session);
  const where = h("span", { class: "where" });
  const age = h("span", { class: "age faint" });
  const outcome = h("div", { class: "outcome", hidden: true });
  const foot = h("div", { class: "foot" });
  const title = h("h3", { class: "title" }, clean(clearance.title));
  let known = facts(clearance);
  const element = h(
    "article",
    {
      class: `card risk-${clearance.risk}`,
      tabindex: "0",
      data: { stop: "card", id: clearance.id },
      "aria-label": `Clearance, ${clearance.risk} risk: ${clean(clearance.title)}`,
    },
    h("header", {}, badge(clearance.risk), title, age),
    h("div", { class: "sub faint" }, where, h("span", { class: "mono" }, short(clearance.id))),
    clearance.description ? h("div", { class: "description" }, renderLong(clearance.description)) : null,
    known,
    clearance.diff ? renderDiff(clearance.diff, clearance.file_path) : null,
    outcome,
    foot,
  );
  let shown = null;
  let press = {};
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
      state.you?.role,
    ]);
    if (version === shown) return;
    const first = shown === null;
    shown = version;
    const fresh = facts(clearance);
    known.replaceWith(fresh);
    known = fresh;
    const open = clearance.status === "pending";
    element.classList.toggle("settled", !open);
    outcome.hidden = open;
    if (open) {
      const made = actions(clearance);
      press = made.press;
      foot.replaceChildren(made.element);
      return;
    }
    press = {};
    const focused = foot.contains(document.activeElement);
    foot.replaceChildren();
    outcome.replaceChildren(
      h(
        "ol",
        { class: `fate ${clearance.status}` },
        fate(clearance).map((step) => h("li", {}, step)),
      ),
      clearance.reason ? h("p", { class: "reason" }, clean(clearance.reason)) : "",
    );
    if (focused) element.focus();
    if (!first) announce(`${clean(clearance.title)}: ${fate(clearance)[0]}`);
  };
  element.addEventListener("keydown", (event) => {
    if (event.target !== element || event.ctrlKey || event.metaKey || event.altKey || onTheWay() || event.repeat)
      return;
    const more = {
      n: () => may(state, "operator") && nudge(clearance.session),
      i: () => (location.hash = `#/s/${clearance.session}/write`),
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
