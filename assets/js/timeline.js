// @ts-check
// The timeline of a session's log, loaded from its end backwards while the reader scrolls.

import * as api from "./api.js";
import { note, noted } from "./address.js";
import { h, button } from "./dom.js";
import { on } from "./live.js";
import { add, prepend, timeline } from "./fold.js";
import { virtual } from "./virtual.js";
import { entry } from "./timeline/entry.js";
/** @import { LoggedEvent } from "../types/models" */

/** The page size in events; the API permits up to a thousand. */
const PAGE = 1000;

/**
 * The loaded events of a session.
 *
 * @param {string} session
 */
function pages(session) {
  const line = timeline();
  let [oldest, newest] = [Number.MAX_SAFE_INTEGER, 0];
  let [loading, whole] = [false, false];

  /** Fetches the previous page. Returns false if there is none. */
  async function older() {
    if (loading || whole) return false;
    loading = true;
    try {
      const page = await api.get(`/events?session=${session}&before=${oldest}&limit=${PAGE}&summary=own`);
      const events = /** @type {LoggedEvent[]} */ (page.items);
      whole = events.length === 0;
      // Some of these events may have arrived over the stream meanwhile.
      const fresh = events.filter((event) => event.seq < oldest);
      if (fresh.length) {
        newest = Math.max(newest, fresh[fresh.length - 1].seq);
        oldest = fresh[0].seq;
        prepend(line, fresh);
      }
      return true;
    } finally {
      loading = false;
    }
  }

  /**
   * Adds events of the stream. Returns true if any of them is of this session.
   *
   * @param {LoggedEvent[]} events
   */
  function take(events) {
    const mine = events.filter((event) => event.session === session && event.seq > newest);
    for (const event of mine) {
      newest = event.seq;
      oldest = Math.min(oldest, event.seq);
      add(line, event);
    }
    return mine.length > 0;
  }
  return { line, older, take };
}

/** @param {string} session */
export function log(session) {
  const { line, older, take } = pages(session);
  const trouble = h("p", { class: "trouble", hidden: true });
  const list = virtual({
    items: () => line.items,
    key: (item) => item.seq,
    make: entry,
    label: "Timeline, oldest first",
    onTop: () => load(),
    start: noted().timeline ?? null,
  });

  async function load() {
    try {
      if (!(await older())) return;
      trouble.hidden = true;
      list.draw();
    } catch (error) {
      trouble.hidden = false;
      trouble.textContent = api.why(error);
    }
  }

  const jump = button("Newest", () => list.toEnd(), { class: "small float", hidden: true });
  const showJump = () => (jump.hidden = list.reader.atEnd);
  list.element.addEventListener("scroll", showJump, { passive: true });
  const offs = [on("events", (events) => take(events) && list.draw()), on("change", showJump)];
  load();
  return {
    element: h("div", { class: "log" }, trouble, list.element, jump),
    close() {
      note({ timeline: list.reader.place });
      offs.forEach((off) => off());
      list.close();
    },
  };
}
