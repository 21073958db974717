// @ts-check
// A choice of one of a few values.

import { h } from "./dom.js";
/** @import { Properties } from "./dom.js" */

/**
 * @param {Array<[string | number, string]>} options values with their words
 * @param {string | number} current
 * @param {(value: string) => void} choose
 * @param {Properties} properties
 */
export function select(options, current, choose, properties) {
  const element = h(
    "select",
    { ...properties, onchange: () => choose(element.value) },
    options.map(([value, words]) =>
      h("option", { value: String(value), selected: String(value) === String(current) }, words),
    ),
  );
  return element;
}
