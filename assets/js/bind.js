// @ts-check
// Bindings of views to models: an unchanged model is not rendered again. Pure; page.js renders when the state changes.

/** @typedef {<Model>(model: () => Model, render: (model: Model) => void) => void} Bind */

/** @type {unknown[]} */
const PLAIN = [Object.prototype, Array.prototype];

/**
 * Compares two models field by field. Fields are values, or objects that are replaced when they change.
 *
 * @param {any} a
 * @param {any} b
 */
function same(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || !a || !b) return false;
  const kind = Object.getPrototypeOf(a);
  if (!PLAIN.includes(kind) || kind !== Object.getPrototypeOf(b)) return false;
  const names = Object.keys(a);
  if (names.length !== Object.keys(b).length) return false;
  return names.every((name) => Object.hasOwn(b, name) && Object.is(a[name], b[name]));
}

/** Bindings that are rendered together. `bind` renders a model at once, and at each `draw` that finds it changed. */
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
