// @ts-check
// The bindings of a page.

import { bindings } from "./bind.js";
import { on } from "./live.js";

/**
 * The bindings of a page: rendered when a model changes, and at an interval because durations grow, until the page is
 * closed.
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
