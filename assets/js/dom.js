// @ts-check
// Elements. Text is inserted as text: nothing in the console turns a string into markup.

/** @import { Child } from "../types/models" */
/** @typedef {Record<string, any>} Properties */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @template {HTMLElement | SVGElement} E
 * @param {E} element
 * @param {Properties} properties
 * @param {Child[]} children
 */
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value == null || value === false) continue;
    if (name === "class") element.setAttribute("class", value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") Object.assign(element, { value });
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...flat(children));
  return element;
}

/**
 * @param {Child[]} children
 * @returns {Array<string | Node>}
 */
const flat = (children) =>
  children.flatMap((child) => {
    if (Array.isArray(child)) return flat(child);
    if (child == null || child === false || child === "") return [];
    return [typeof child === "number" ? String(child) : child];
  });

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Properties} properties
 * @param {Child[]} children
 */
export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Properties} properties
 * @param {Child[]} children
 */
export const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

/**
 * Replaces the content.
 *
 * @param {Element} element
 * @param {Child[]} children
 */
export const replace = (element, ...children) => element.replaceChildren(...flat(children));

/**
 * Replaces the text, unless it is unchanged.
 *
 * @param {Element} element
 * @param {string | number | null | undefined} value
 */
export function text(element, value) {
  const wanted = value == null ? "" : String(value);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {string | number | null | undefined | false} value
 */
export function attribute(element, name, value) {
  if (value == null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/**
 * The entries of each parent, by key.
 *
 * @type {WeakMap<Element, Map<string, any>>}
 */
const standing = new WeakMap();

/**
 * Keeps a list of elements in step with a list of items, and changes only the differences.
 *
 * @template Item
 * @template {{ element: HTMLElement, update(item: Item): void }} Entry
 * @param {HTMLElement} parent
 * @param {Item[]} items
 * @param {(item: Item) => string} key
 * @param {(item: Item) => Entry} create
 */
export function keyed(parent, items, key, create) {
  /** @type {Map<string, Entry>} */
  const known = standing.get(parent) ?? new Map();
  standing.set(parent, known);
  const wanted = new Set();
  const { activeElement } = document;
  const focused = activeElement instanceof HTMLElement && parent.contains(activeElement) ? activeElement : null;
  /** @type {HTMLElement | null} */
  let before = null;
  for (const item of items) {
    const id = key(item);
    wanted.add(id);
    let entry = known.get(id);
    if (!entry) known.set(id, (entry = create(item)));
    entry.update(item);
    const { element } = entry;
    /** @type {ChildNode | null} */
    const place = before ? before.nextSibling : parent.firstChild;
    if (place !== element) parent.insertBefore(element, place);
    before = element;
  }
  for (const [id, entry] of known) {
    if (wanted.has(id)) continue;
    entry.element.remove();
    known.delete(id);
  }
  // A moved element loses the focus, and a keyboard user would start again at the top.
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

/** @typedef {keyof typeof PATHS} Icon */
const PATHS = {
  fleet: "M4 5h16M4 12h16M4 19h10",
  inbox: "M4 13l3-8h10l3 8v6H4zM4 13h5l1 3h4l1-3h5",
  policy: "M12 3l7 3v6c0 4-3 7-7 9-4-2-7-5-7-9V6z",
  audit: "M6 3h9l4 4v14H6zM9 12h7M9 16h7M9 8h3",
  charts: "M5 20V10M12 20V4M19 20v-7",
  settings: "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM12 2v3M12 19v3M4 6l2 2M18 16l2 2M2 12h3M19 12h3M4 18l2-2M18 8l2-2",
  check: "M5 13l4 4L19 7",
  cross: "M6 6l12 12M18 6L6 18",
  back: "M15 5l-7 7 7 7",
  up: "M12 19V6M6 11l6-6 6 6",
  down: "M12 5v13M6 13l6 6 6-6",
  send: "M4 12l16-8-6 16-3-7z",
  more: "M5 12h.01M12 12h.01M19 12h.01",
};

/** @param {Icon} name */
export const icon = (name) =>
  svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));

/**
 * A button with a label.
 *
 * @param {string} label
 * @param {(event: MouseEvent) => unknown} onclick
 * @param {Properties} properties
 */
export const button = (label, onclick, properties = {}) =>
  h("button", { type: "button", onclick, ...properties }, label);

/**
 * For decisions: ignores the second click of a double click, which was meant for the previous card.
 *
 * @param {() => unknown} act
 * @returns {(event: MouseEvent) => unknown}
 */
export const single = (act) => (event) => event.detail < 2 && act();

/** @param {EventTarget | null} target */
export const within = (target) => (target instanceof Element ? target : null);

/**
 * Announces a text to screen readers.
 *
 * @param {string} message
 */
export function announce(message, urgent = false) {
  const place = document.getElementById(urgent ? "alarm" : "announce");
  if (place) text(place, message);
}

/** @type {HTMLElement | undefined} */
let toasts;
/**
 * Shows a short notice at the edge of the page for a while.
 *
 * @param {string} message
 * @param {"info" | "error"} kind
 */
export function toast(message, kind = "info") {
  if (!toasts) document.body.append((toasts = h("div", { class: "toasts" })));
  const element = h("div", { class: `toast ${kind}` }, message);
  toasts.append(element);
  announce(message, kind === "error");
  setTimeout(() => element.remove(), kind === "error" ? 9000 : 4000);
}

/**
 * @template Found
 * @typedef {object} Asked
 * @property {string} title
 * @property {Child} body
 * @property {string} yes
 * @property {string | null} [no]
 * @property {boolean} [danger]
 * @property {(form: HTMLFormElement) => Found} read
 */

/**
 * Asks in a dialog. Returns the result of `read`, or `null` if the person cancels.
 *
 * @template Found
 * @param {Asked<Found>} asked
 * @returns {Promise<Found | null>}
 */
export function ask({ title, body, yes, no = "Cancel", danger = false, read }) {
  return new Promise((resolve) => {
    /** @type {HTMLFormElement} */
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", {}, title),
      body,
      h(
        "div",
        { class: "row end" },
        no ? button(no, () => dialog.close("")) : null,
        h("button", { class: danger ? "danger" : "primary", value: "yes" }, yes),
      ),
    );
    /** @type {HTMLDialogElement} */
    const dialog = h("dialog", { class: "dialog", "aria-label": title }, form);
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes" ? read(form) : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Asks for a confirmation.
 *
 * @param {Omit<Asked<true>, "read">} asked
 */
export const confirm = (asked) => ask({ ...asked, read: () => true });
