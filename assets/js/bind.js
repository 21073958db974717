// @ts-check
// Keeps a page in step with its models: what is the same is not drawn again.

import { on } from "./live.js";

/** @typedef {<Model>(model: () => Model, render: (model: Model) => void) => void} Bind */

/** @param {unknown} value */
const isPlain = (value) =>
  typeof value === "object" &&
  value !== null &&
  [Object.prototype, Array.prototype].includes(Object.getPrototypeOf(value));

/**
 * Compares two models field by field. Fields are values, or objects that are replaced when they change.
 *
 * @param {any} a
 * @param {any} b
 */
function same(a, b) {
  if (!isPlain(a) || !isPlain(b)) return Object.is(a, b);
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => Object.is(a[name], b[name]));
}

/** Bindings that are drawn together. `bind` renders a model at once, and at each `draw` that finds it different. */
export function bindings() {
  /** @type {Array<() => void>} */
  const all = [];
  /** @type {Bind} */
  const bind = (model, render) => {
    let shown = model();
    render(shown);
    all.push(() => {
      const now = model();
      if (same(now, shown)) return;
      shown = now;
      render(now);
    });
  };
  return { bind, draw: () => all.forEach((draw) => draw()) };
}

/**
 * The bindings of a page: drawn whenever a model changes until it is closed, and every so many milliseconds, because
 * durations grow.
 *
 * @param {number} [every]
 */
export function pageBindings(every) {
  const { bind, draw } = bindings();
  const off = on("change", draw);
  const tick = every ? setInterval(draw, every) : undefined;
  const close = () => {
    off();
    clearInterval(tick);
  };
  return { bind, draw, close };
}
