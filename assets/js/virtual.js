// @ts-check
// A virtual list: only visible items are in the page.

import { h, within } from "./dom.js";
import { Heights } from "./virtual/heights.js";
import { Reader } from "./virtual/reader.js";
/** @import { Place } from "./virtual/reader.js" */

/** The margin beyond the edges, in pixels, in which items are rendered. */
const AROUND = 600;

/**
 * @template Item
 * @typedef {{ element: HTMLElement, update(item: Item): void }} Entry
 */
/**
 * @template Item
 * @typedef {object} Listed
 * @property {() => Item[]} items in order
 * @property {(item: Item) => number} key
 * @property {(item: Item) => Entry<Item>} make
 * @property {string} label
 * @property {() => void} onTop called near to the beginning
 * @property {Place | null} start where a reader left
 */

/**
 * Calls at most once per frame.
 *
 * @param {() => void} draw
 */
function oncePerPicture(draw) {
  let drawing = false;
  return () => {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      draw();
    });
  };
}

/**
 * The items that are in the page.
 *
 * @template {{ version: number }} Item
 * @param {HTMLElement} runway
 * @param {Heights<Item>} heights
 * @param {Listed<Item>} listed
 * @param {() => void} onMeasured
 */
function pictures(runway, heights, { key, make }, onMeasured) {
  /** @type {Map<number, Entry<Item> & { version: number }>} */
  const drawn = new Map();
  /** @type {WeakMap<Element, Item>} */
  const items = new WeakMap();
  const observer = new ResizeObserver((entries) => {
    const moved = entries.filter(({ target }) => {
      const item = items.get(target);
      return item && target instanceof HTMLElement && heights.measure(item, target.offsetHeight);
    });
    if (moved.length) onMeasured();
  });
  /** @param {Item} item */
  const entryOf = (item) => {
    const known = drawn.get(key(item));
    if (known) return known;
    const entry = { ...make(item), version: item.version };
    drawn.set(key(item), entry);
    items.set(entry.element, item);
    runway.append(entry.element);
    observer.observe(entry.element);
    return entry;
  };
  /** @type {(list: Item[], first: number, last: number) => void} */
  const draw = (list, first, last) => {
    const shown = new Set();
    for (let n = first; n < last; n += 1) {
      const item = list[n];
      const entry = entryOf(item);
      shown.add(key(item));
      if (entry.version !== item.version) entry.update(item);
      entry.version = item.version;
      items.set(entry.element, item);
      entry.element.style.transform = `translateY(${heights.offset(n)}px)`;
      entry.element.setAttribute("aria-posinset", String(n + 1));
      entry.element.setAttribute("aria-setsize", String(list.length));
    }
    for (const [id, { element }] of drawn) {
      if (shown.has(id) || element.contains(document.activeElement)) continue;
      observer.unobserve(element);
      element.remove();
      drawn.delete(id);
    }
  };
  return { draw, close: () => observer.disconnect() };
}

/**
 * @template {{ version: number }} Item
 * @param {Listed<Item>} listed
 */
export function virtual(listed) {
  const { items, key, label, onTop, start } = listed;
  const runway = h("div", { class: "runway" });
  const element = h("div", { class: "timeline", role: "feed", "aria-label": label, tabindex: "0" }, runway);
  /** @type {Heights<Item>} */
  const heights = new Heights();
  const reader = new Reader(element, heights, key, start);
  const shown = pictures(runway, heights, listed, () => draw());

  function draw() {
    const list = items();
    reader.notice();
    const total = heights.place(list);
    runway.style.height = `${total}px`;
    const top = reader.restore(list, total);
    const last = Math.min(list.length, heights.find(top + element.clientHeight + AROUND) + 1);
    shown.draw(list, heights.find(top - AROUND), last);
    // Items below the new end have moved: the browser may have scrolled the list.
    reader.keep(element.scrollTop);
    if (top < AROUND) onTop();
  }

  const soon = oncePerPicture(draw);
  const scrolled = () => {
    reader.notice();
    soon();
  };
  element.addEventListener("scroll", scrolled, { passive: true });
  // A reader who opens an item reads from there, even at the end of the list.
  element.addEventListener("click", ({ target }) => within(target)?.closest("summary") && reader.stay());
  const resized = new ResizeObserver(soon);
  resized.observe(element);
  return {
    element,
    draw: soon,
    reader,
    toEnd() {
      reader.follow();
      draw();
    },
    close() {
      shown.close();
      resized.disconnect();
    },
  };
}
