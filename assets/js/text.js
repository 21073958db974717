// @ts-check
// Text of others, made safe and short for display. The same rules as the command line's (src/text.rs).

/** @import { Session } from "../types/models" */

const DECEIVING = [
  [0x00, 0x1f],
  [0x7f, 0x9f],
  [0xad, 0xad],
  [0x34f, 0x34f],
  [0x61c, 0x61c],
  [0x115f, 0x1160],
  [0x17b4, 0x17b5],
  [0x180b, 0x180f],
  [0x200b, 0x200f],
  [0x2028, 0x202e],
  [0x2060, 0x206f],
  [0x3164, 0x3164],
  [0xd800, 0xdfff],
  [0xfe00, 0xfe0f],
  [0xfeff, 0xfeff],
  [0xffa0, 0xffa0],
  [0xfff0, 0xfffb],
  [0x1bca0, 0x1bca3],
  [0x1d173, 0x1d17a],
  [0xe0000, 0xe0fff],
];

/** @param {number} point */
function deceives(point) {
  for (const [first, last] of DECEIVING) {
    if (point < first) return false;
    if (point <= last) return true;
  }
  return false;
}

/** @param {number} point */
const hex = (point) => `<U+${point.toString(16).toUpperCase().padStart(4, "0")}>`;

/**
 * The text of a value that should be a string and may be anything: an agent's object may have no usable `toString`.
 *
 * @param {unknown} value
 * @returns {string}
 */
export const said = (value) => (typeof value === "string" ? value : value == null ? "" : JSON.stringify(value));

/**
 * The fields of a value that should be an object and may be anything.
 *
 * @param {unknown} value
 * @returns {Record<string, unknown>}
 */
export const fieldsOf = (value) =>
  typeof value === "object" && value && !Array.isArray(value) ? /** @type {any} */ (value) : {};

/**
 * Several lines: line feeds and tabs stay; characters that hide or reverse text are written out.
 *
 * @param {unknown} text
 */
export function cleanBlock(text) {
  const given = said(text);
  // Most text has no such characters, and is scanned only once.
  if (!/[^\n\t\x20-\x7e\xa1-\xac\xae-\u02ff\u0370-\u061b\u061d-\u115e]/.test(given)) return given;
  let clean = "";
  let before = 0;
  for (const char of given) {
    const point = char.codePointAt(0) ?? 0;
    if (point === 0x0a || point === 0x09) clean += char;
    // Selects the coloured form of the symbol before it: harmless and common.
    else if (point === 0xfe0f && before >= 0x203c && before !== 0xfe0f) clean += char;
    else clean += deceives(point) ? hex(point) : char;
    before = point;
  }
  return clean;
}

/**
 * One line.
 *
 * @param {unknown} text
 */
export const clean = (text) => cleanBlock(text).replaceAll("\n", "⏎").replaceAll("\t", " ");

/**
 * Text of others, in quotes that nothing inside can close.
 *
 * @param {unknown} text
 */
export const quoted = (text) => `“${clean(text).replace(/[“”„"«»]/g, "'")}”`;

/**
 * The subject of a clearance on one line: its command or change, then the agent's title. Every page, list and
 * notification shows this line (src/action.rs).
 *
 * @param {{ action?: string | null, title?: unknown }} clearance
 */
export function line({ action, title }) {
  const words = clean(title).replace(/^[\s`'"]+|[\s`'"]+$/g, "");
  if (!action) return quoted(cut(said(title), 100));
  return clean(action).includes(words) ? clean(action) : `${clean(action)} ${quoted(cut(said(title), 100))}`;
}

/**
 * At most this many characters.
 *
 * @param {string} text
 * @param {number} length
 */
export function cut(text, length) {
  if (text.length <= length) return text;
  const chars = Array.from(text);
  return chars.length <= length ? text : chars.slice(0, length - 1).join("") + "…";
}

/**
 * An id as people compare it.
 *
 * @param {unknown} id
 */
export function short(id) {
  const [, prefix, rest] = /^([a-z]+_)?(.*)$/s.exec(String(id ?? "")) ?? [];
  return clean((prefix ?? "") + (rest ?? "").slice(0, 8));
}

/**
 * The last part of a path.
 *
 * @param {string | null | undefined} path
 */
export const project = (path) =>
  clean(
    String(path ?? "")
      .replace(/\/+$/, "")
      .split("/")
      .pop() || "/",
  );

/** @type {Array<[string, number]>} */
const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

/**
 * `2h 5m`: the two largest units that are not zero.
 *
 * @param {number} millis
 */
export function span(millis) {
  let left = Math.max(0, Math.round(millis / 1000));
  const parts = [];
  for (const [name, size] of UNITS) {
    const count = Math.floor(left / size);
    if (count > 0) parts.push(`${count}${name}`);
    else if (parts.length > 0) break;
    left -= count * size;
    if (parts.length === 2) break;
  }
  return parts.join(" ") || "0s";
}

/** @param {string | null | undefined} time */
export const since = (time, now = Date.now()) => (time ? span(now - Date.parse(time)) : "");

/** @type {(count: number, word: string) => string} */
export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/**
 * Turns, tokens and cost of a session, as its agent reports them.
 *
 * @param {Session["spent"] | undefined} spent
 */
export function usage(spent) {
  if (!spent) return "";
  const tokens = spent.total_tokens || spent.input_tokens + spent.output_tokens;
  const words = [
    spent.turns && plural(spent.turns, "turn"),
    tokens && `${tokens.toLocaleString("en")} tokens`,
    cost(spent),
  ];
  return words.filter(Boolean).join(", ");
}

/**
 * The cost, with enough digits to be useful.
 *
 * @param {Session["spent"] | undefined} spent
 */
export const cost = (spent) =>
  spent?.cost ? `${spent.cost.toFixed(spent.cost < 0.1 ? 4 : 2)} ${clean(spent.currency ?? "")}`.trim() : "";

/**
 * The local time, with the day unless it is today.
 *
 * @param {string | null | undefined} time
 */
export function clock(time) {
  const at = new Date(time ?? NaN);
  if (Number.isNaN(at.getTime())) return "";
  const hour = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const today = new Date().toDateString() === at.toDateString();
  return today ? hour : `${at.toLocaleDateString([], { day: "numeric", month: "short" })} ${hour}`;
}

/**
 * A sentence of the daemon, with its UTC times converted to local ones.
 *
 * @param {string | null | undefined} text
 */
export const localTimes = (text) =>
  String(text ?? "").replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, (time) => clock(time) || time);

/**
 * The real address of a link; `null` if an agent's link must not lead there.
 *
 * @param {unknown} href
 */
export function target(href) {
  try {
    const url = new URL(String(href).trim());
    return ["http:", "https:"].includes(url.protocol) && !url.username ? url.href : null;
  } catch {
    return null;
  }
}
