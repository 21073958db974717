// A session's log, from its end backwards as far as one scrolls.

import * as api from "./api.js";
import { note, noted } from "./address.js";
import { checklist } from "./checklist.js";
import { h, button, ask, toast } from "./dom.js";
import { on } from "./live.js";
import { add, prepend, sentence, timeline } from "./fold.js";
import { virtual } from "./virtual.js";
import { clean, cleanBlock, clock, cut, line as subject, short } from "./text.js";
import { renderLong, SHOWN } from "./markdown.js";
import { badge, fate, whole } from "./card.js";

/** Events of one page; the API gives up to a thousand. */
const PAGE = 1000;
/** Of what a tool has put out, so much is shown. */
const OUTPUT = 4000;

function toolContent(content) {
  const parts = (content ?? []).map((part) => {
    if (part?.type === "content" && typeof part.content?.text === "string")
      return h("pre", { tabindex: "0" }, cleanBlock(cut(part.content.text, OUTPUT)));
    if (part?.type === "diff") return h("p", { class: "mono wrap" }, `changes ${clean(part.path)}`);
    return null;
  });
  const shown = parts.filter(Boolean);
  return shown.length ? h("details", { class: "more" }, h("summary", {}, "Output"), shown) : null;
}

/** The command and the change that a clearance is about, fetched when somebody opens it. */
function request(item) {
  const place = h("div", { class: "content" });
  const details = h("details", { class: "more request" }, h("summary", {}, "What was asked"), place);
  details.addEventListener("toggle", async () => {
    item.opened = details.open;
    if (!details.open || place.childElementCount) return;
    try {
      item.whole ??= await api.get(`/clearances/${item.id}`);
      place.replaceChildren(...whole(item.whole).filter(Boolean));
    } catch (error) {
      place.replaceChildren(h("p", { class: "trouble" }, api.why(error)));
    }
  });
  details.open = item.opened === true;
  return details;
}

const TOOL = new Map([
  ["completed", "done"],
  ["failed", "failed"],
  ["in_progress", "running"],
  ["pending", "to come"],
]);

function body(item) {
  if (item.type === "message") return renderLong(item.text);
  if (item.type === "echo") return h("p", { class: "faint" }, clean(item.text));
  if (item.type === "thought")
    return h("details", { class: "thought" }, h("summary", {}, "Thought"), renderLong(item.text));
  if (item.type === "plan") return checklist(item.steps);
  if (item.type === "tool") {
    return [
      h(
        "p",
        {},
        h("span", { class: `badge tool ${item.status}` }, TOOL.get(item.status) ?? clean(item.status)),
        " ",
        item.tool ? h("span", { class: "faint" }, `${clean(item.tool)} `) : null,
        h("span", { class: "mono wrap" }, clean(cut(item.title, 400))),
      ),
      toolContent(item.content),
    ];
  }
  if (item.type === "prompt") {
    const by = item.data.by ? clean(item.data.by) : "somebody";
    const word = { pending: "queued", withdrawn: "taken back", undelivered: "NOT delivered" }[item.state] ?? "";
    return [h("p", { class: "faint" }, by, word ? h("span", { class: "badge" }, word) : null), renderLong(item.text)];
  }
  if (item.type === "clearance") {
    const { data, standing } = item;
    const word = standing.status ? fate(standing) : ["waits for a decision"];
    return [
      h(
        "p",
        {},
        badge(["low", "medium", "high", "critical"].includes(data.risk) ? data.risk : "high"),
        " ",
        h(
          "strong",
          { class: "wrap" },
          subject({ action: data.action ?? data.command ?? data.file_path, title: item.text }),
        ),
      ),
      h(
        "p",
        { class: `settlement ${clean(standing.status ?? "")}` },
        word.join(" · "),
        standing.reason ? h("span", { class: "faint" }, ` “${clean(standing.reason)}”`) : null,
        " ",
        h("span", { class: "mono faint" }, short(item.id)),
      ),
      request(item),
    ];
  }
  if (item.type === "question") {
    const word =
      item.state === "pending"
        ? "waits for an answer"
        : item.state === "answered"
          ? `${clean(item.data.decision ?? "answered")}${item.data.by ? ` by ${clean(item.data.by)}` : ""}`
          : clean(item.state ?? "");
    return [
      renderLong(item.text),
      h(
        "p",
        { class: "settlement" },
        word,
        item.data.instruction ? h("span", { class: "faint" }, ` “${clean(item.data.instruction)}”`) : null,
      ),
    ];
  }
  const told = sentence(item.events[0]);
  const stderr = item.events[0].data?.stderr_tail;
  return [
    h("p", { class: told.bad ? "bad" : "" }, clean(cut(told.text, 600))),
    typeof stderr === "string" && stderr.trim()
      ? h("pre", { class: "stderr", tabindex: "0" }, cleanBlock(stderr))
      : null,
  ];
}

const WHO = {
  message: "agent",
  thought: "agent",
  tool: "tool",
  plan: "plan",
  prompt: "prompt",
  clearance: "clearance",
  question: "question",
  echo: "you",
  fact: "",
};

async function raw(item) {
  const text = item.events.map((event) => JSON.stringify(event, null, 2)).join("\n");
  const shown = cleanBlock(cut(text, SHOWN));
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser does not let this page copy", "error");
    }
  });
  await ask({
    title: `Events ${item.seq}`,
    body: [
      h("div", { class: "row" }, h("span", { class: "faint grow" }, `${item.events.length} in the log`), copy),
      h("pre", { class: "raw", tabindex: "0" }, shown),
    ],
    yes: "Close",
    no: null,
  });
}

function make(item) {
  const inner = h("div", { class: "body" }, body(item));
  const element = h(
    "article",
    { class: `item ${item.type}`, tabindex: "-1", "aria-label": `${WHO[item.type] || "event"}, ${clock(item.at)}` },
    h(
      "div",
      { class: "gutter" },
      h("time", { class: "tabular faint", datetime: item.at }, clock(item.at)),
      h(
        "button",
        { type: "button", class: "plain rawbutton", "aria-label": "Raw events", onclick: () => raw(current) },
        "{ }",
      ),
    ),
    inner,
  );
  let current = item;
  return {
    element,
    update(now) {
      current = now;
      const opened = inner.querySelector("details.thought[open]") !== null;
      inner.replaceChildren(...[body(now)].flat().filter(Boolean));
      if (opened) inner.querySelector("details.thought")?.setAttribute("open", "");
    },
  };
}

export function log(session) {
  const line = timeline();
  // What we have, from the first to the last.
  let [oldest, newest] = [Number.MAX_SAFE_INTEGER, 0];
  let [loading, whole] = [false, false];
  const trouble = h("p", { class: "trouble", hidden: true });
  const list = virtual({
    items: () => line.items,
    key: (item) => item.seq,
    make,
    label: "What happened, oldest first",
    onTop: () => older(),
    start: noted().timeline,
  });
  const jump = button("Newest", () => list.toEnd(), { class: "small float" });
  jump.hidden = true;
  const element = h("div", { class: "log" }, trouble, list.element, jump);

  async function older() {
    if (loading || whole) return;
    loading = true;
    try {
      const page = await api.get(`/events?session=${session}&before=${oldest}&limit=${PAGE}&summary=own`);
      whole = page.items.length === 0;
      if (!whole) {
        // Some of it may have come over the stream while we asked.
        const fresh = page.items.filter((event) => event.seq < oldest);
        if (fresh.length) {
          newest = Math.max(newest, fresh[fresh.length - 1].seq);
          oldest = fresh[0].seq;
          prepend(line, fresh);
        }
      }
      trouble.hidden = true;
      list.draw();
    } catch (error) {
      trouble.hidden = false;
      trouble.textContent = api.why(error);
    } finally {
      loading = false;
    }
  }

  const off = on("events", (fresh) => {
    const mine = fresh.filter((event) => event.session === session && event.seq > newest);
    if (!mine.length) return;
    for (const event of mine) {
      newest = event.seq;
      oldest = Math.min(oldest, event.seq);
      add(line, event);
    }
    list.draw();
  });
  const offChange = on("change", () => {
    jump.hidden = list.atEnd;
  });
  list.element.addEventListener("scroll", () => (jump.hidden = list.atEnd), { passive: true });
  older();
  return {
    element,
    close() {
      note({ timeline: list.place });
      off();
      offChange();
      list.close();
    },
  };
}
