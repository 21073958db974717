// A list of any length: only what can be seen is in the page. Heights are guessed, then measured, then remembered.

import { h } from "./dom.js";

const GUESS = 44;
const AROUND = 600;
/** Kept with the item itself: looking up a hundred thousand heights for each picture would be felt. */
const HEIGHT = Symbol("height");

/** `items()` in order, `key(item)`, `make(item) → {element, update(item)}`, `start`: the `place` that a reader left. */
export function virtual({ items, key, make, label, onTop, start = null }) {
  const runway = h("div", { class: "runway" });
  const scroller = h("div", { class: "timeline", role: "feed", "aria-label": label, tabindex: "0" }, runway);
  const drawn = new Map();
  let offsets = new Float64Array(1);
  let stick = !start;
  // Not there before its part of the list is; a reader who scrolls wants something else.
  let wanted = start;
  const observer = new ResizeObserver((entries) => {
    let moved = false;
    for (const { target } of entries) {
      const height = target.offsetHeight;
      if (height && target.item[HEIGHT] !== height) {
        target.item[HEIGHT] = height;
        moved = true;
      }
    }
    if (!moved) return;
    stale = true;
    draw();
  });

  // What the offsets are of, and whether a height has changed since.
  let placed = { list: [], length: 0 };
  let stale = false;
  function place(list) {
    if (!stale && placed.list === list && placed.length === list.length) return offsets[list.length];
    stale = false;
    placed = { list, length: list.length };
    if (offsets.length < list.length + 1) offsets = new Float64Array(Math.ceil((list.length + 1) * 1.5));
    for (let n = 0; n < list.length; n += 1) offsets[n + 1] = offsets[n] + (list[n][HEIGHT] ?? GUESS);
    return offsets[list.length];
  }

  /** The first item that ends below this. */
  function find(y) {
    let [low, high] = [0, placed.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (offsets[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  let anchor = null;
  // Where we have put it ourselves: anything else is the reader's wish, heard of before the event that tells it.
  let put = 0;
  function notice() {
    const top = scroller.scrollTop;
    if (Math.abs(top - put) < 1) return;
    put = top;
    wanted = null;
    stick = top + scroller.clientHeight >= scroller.scrollHeight - 24;
    remember();
  }
  function remember() {
    const at = Math.min(find(put), placed.length - 1);
    anchor = at >= 0 ? { index: at, key: key(placed.list[at]), offset: put - offsets[at] } : null;
  }

  function draw() {
    const list = items();
    notice();
    const total = place(list);
    runway.style.height = `${total}px`;
    const view = scroller.clientHeight;
    const found = wanted ? list.findIndex((item) => key(item) === wanted.key) : -1;
    if (found >= 0) {
      scroller.scrollTop = offsets[found] + wanted.offset;
      // Once what is above it has been measured, it stays where it is.
      wanted = null;
    } else if (stick) scroller.scrollTop = total;
    else if (anchor && list[anchor.index]) {
      // What is being read stays where it is, whatever was measured above it.
      const index =
        key(list[anchor.index]) === anchor.key ? anchor.index : list.findIndex((item) => key(item) === anchor.key);
      if (index >= 0) scroller.scrollTop = offsets[index] + anchor.offset;
    }
    const top = scroller.scrollTop;
    const [first, last] = [find(top - AROUND), Math.min(list.length, find(top + view + AROUND) + 1)];
    const shown = new Set();
    for (let n = first; n < last; n += 1) {
      const item = list[n];
      const id = key(item);
      shown.add(id);
      let entry = drawn.get(id);
      if (!entry) {
        entry = make(item);
        entry.version = item.version;
        drawn.set(id, entry);
        entry.element.item = item;
        runway.append(entry.element);
        observer.observe(entry.element);
      } else if (entry.version !== item.version) {
        entry.version = item.version;
        entry.update?.(item);
      }
      entry.element.item = item;
      entry.element.style.transform = `translateY(${offsets[n]}px)`;
      entry.element.setAttribute("aria-posinset", n + 1);
      entry.element.setAttribute("aria-setsize", list.length);
    }
    for (const [id, entry] of drawn) {
      if (shown.has(id) || entry.element.contains(document.activeElement)) continue;
      observer.unobserve(entry.element);
      entry.element.remove();
      drawn.delete(id);
    }
    put = top;
    remember();
    if (top < AROUND) onTop?.();
  }

  let drawing = false;
  const soon = () => {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      draw();
    });
  };
  scroller.addEventListener(
    "scroll",
    () => {
      notice();
      soon();
    },
    { passive: true },
  );
  // Who opens something reads from there, also if it was at the end.
  scroller.addEventListener("click", (event) => {
    if (!event.target.closest("summary")) return;
    put = scroller.scrollTop;
    stick = false;
    remember();
  });
  const resized = new ResizeObserver(soon);
  resized.observe(scroller);

  return {
    element: scroller,
    draw: soon,
    toEnd() {
      put = scroller.scrollTop;
      stick = true;
      draw();
    },
    /** Where the reader is, or nothing at the end. */
    get place() {
      return stick || !anchor ? null : { key: anchor.key, offset: anchor.offset };
    },
    get atEnd() {
      return stick;
    },
    close() {
      observer.disconnect();
      resized.disconnect();
    },
  };
}
