// A list of any length: only what can be seen is in the page. Heights are guessed, then measured, then remembered.

import { h } from "./dom.js";

const GUESS = 44;
const AROUND = 600;

/** `items()` in order, `key(item)`, `make(item) → {element, update(item)}`. */
export function virtual({ items, key, make, label, onTop }) {
  const runway = h("div", { class: "runway" });
  const scroller = h("div", { class: "timeline", role: "feed", "aria-label": label, tabindex: "0" }, runway);
  const heights = new Map();
  const drawn = new Map();
  let offsets = new Float64Array(1);
  let stick = true;
  const observer = new ResizeObserver((entries) => {
    let moved = false;
    for (const { target } of entries) {
      const height = target.offsetHeight;
      if (height && heights.get(target.itemKey) !== height) {
        heights.set(target.itemKey, height);
        moved = true;
      }
    }
    if (moved) draw();
  });

  function place(list) {
    if (offsets.length < list.length + 1) offsets = new Float64Array(Math.ceil((list.length + 1) * 1.5));
    for (let n = 0; n < list.length; n += 1) offsets[n + 1] = offsets[n] + (heights.get(key(list[n])) ?? GUESS);
    return offsets[list.length];
  }

  /** The first item that ends below this. */
  function find(list, y) {
    let [low, high] = [0, list.length];
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
    stick = top + scroller.clientHeight >= scroller.scrollHeight - 24;
    remember(items());
  }
  function remember(list) {
    const at = Math.min(find(list, put), list.length - 1);
    anchor = at >= 0 ? { index: at, key: key(list[at]), offset: put - offsets[at] } : null;
  }

  function draw() {
    const list = items();
    notice();
    const total = place(list);
    runway.style.height = `${total}px`;
    const view = scroller.clientHeight;
    if (stick) scroller.scrollTop = total;
    else if (anchor && list[anchor.index]) {
      // What is being read stays where it is, whatever was measured above it.
      const index =
        key(list[anchor.index]) === anchor.key ? anchor.index : list.findIndex((item) => key(item) === anchor.key);
      if (index >= 0) scroller.scrollTop = offsets[index] + anchor.offset;
    }
    const top = scroller.scrollTop;
    const [first, last] = [find(list, top - AROUND), Math.min(list.length, find(list, top + view + AROUND) + 1)];
    const wanted = new Set();
    for (let n = first; n < last; n += 1) {
      const item = list[n];
      const id = key(item);
      wanted.add(id);
      let entry = drawn.get(id);
      if (!entry) {
        entry = make(item);
        entry.element.itemKey = id;
        entry.version = item.version;
        drawn.set(id, entry);
        runway.append(entry.element);
        observer.observe(entry.element);
      } else if (entry.version !== item.version) {
        entry.version = item.version;
        entry.update?.(item);
      }
      entry.element.style.transform = `translateY(${offsets[n]}px)`;
      entry.element.setAttribute("aria-posinset", n + 1);
      entry.element.setAttribute("aria-setsize", list.length);
    }
    for (const [id, entry] of drawn) {
      if (wanted.has(id) || entry.element.contains(document.activeElement)) continue;
      observer.unobserve(entry.element);
      entry.element.remove();
      drawn.delete(id);
    }
    put = top;
    remember(list);
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
  const resized = new ResizeObserver(soon);
  resized.observe(scroller);

  return {
    element: scroller,
    draw: soon,
    /** Where an item is, brought into view. */
    show(id) {
      const list = items();
      const at = list.findIndex((item) => key(item) === id);
      if (at < 0) return false;
      stick = false;
      place(list);
      anchor = { index: at, key: id, offset: -scroller.clientHeight / 4 };
      put = scroller.scrollTop;
      draw();
      drawn.get(id)?.element.focus({ preventScroll: true });
      return true;
    },
    toEnd() {
      put = scroller.scrollTop;
      stick = true;
      draw();
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
