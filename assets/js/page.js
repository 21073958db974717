// @ts-check
// The bindings of a page.

import { bindings } from "./bind.js";
import { on } from "./live.js";

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
