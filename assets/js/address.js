// @ts-check
// The address: its page, the page's filters, and the scroll position of each visited page.

const POSITIONS = "positions";
/** The pages whose position survives a reload. */
const KEPT = 50;

/**
 * The scroll position of a visit; `anchor` is the row that was at the top.
 *
 * @typedef {object} Position
 * @property {number} top
 * @property {{ name: string, at: number } | null} anchor
 * @property {{ key: number, offset: number } | null} [timeline]
 */

/** @type {Map<string, Partial<Position>>} */
const positions = new Map(JSON.parse(sessionStorage.getItem(POSITIONS) ?? "[]"));
history.scrollRestoration = "manual";

/**
 * The path of a hash without its filters.
 *
 * @param {string} hash
 */
export const pathOf = (hash) => (hash || "#/").split("?")[0];

/**
 * The filters of the address, with the type of their defaults.
 *
 * @template {Record<string, string | number>} Filters
 * @param {Filters} defaults
 * @returns {{ [name in keyof Filters]: Filters[name] extends number ? number : string }}
 */
export function filters(defaults) {
  const given = new URLSearchParams(location.hash.split("?")[1] ?? "");
  /** @param {[string, string | number]} filter */
  const read = ([name, usual]) => {
    const value = given.get(name) ?? usual;
    return [name, typeof usual === "number" ? Number(value) || usual : value];
  };
  return /** @type {any} */ (Object.fromEntries(Object.entries(defaults).map(read)));
}

/**
 * Writes the filters into the address, so that *Back*, a reload and a bookmark lead to the same list.
 *
 * @param {Record<string, string | number>} values
 * @param {Record<string, string | number>} defaults
 */
export function keep(values, defaults) {
  const changed = Object.entries(values)
    .filter(([name, value]) => value !== defaults[name])
    .map(([name, value]) => [name, String(value)]);
  const query = new URLSearchParams(changed).toString();
  history.replaceState(history.state, "", pathOf(location.hash) + (query ? `?${query}` : ""));
}

/** @type {string | null} */
let visit = null;
/**
 * Stores a part of the position in the current page.
 *
 * @param {Partial<Position>} more
 */
export const note = (more) => visit && positions.set(visit, { ...positions.get(visit), ...more });
/**
 * Returns the position that was stored when the reader left the page of the address, if they return to it.
 *
 * @returns {Partial<Position>}
 */
export const noted = () => positions.get(history.state?.visit) ?? {};

addEventListener("scroll", () => note({ top: scrollY }), { passive: true });
addEventListener("pagehide", () => {
  sessionStorage.setItem(POSITIONS, JSON.stringify([...positions].slice(-KEPT)));
});

/** @param {HTMLElement} element */
const nameOf = (element) => element.getAttribute("href") ?? element.dataset.id ?? "";

/**
 * @param {HTMLElement} main
 * @returns {HTMLElement[]}
 */
const rowsOf = (main) => [...main.querySelectorAll("[data-stop]")].filter((row) => row instanceof HTMLElement);

/**
 * Leaves the page that `main` shows for the one of the address. Returns the position that the reader left there before.
 *
 * @param {HTMLElement} main
 * @returns {Position}
 */
export function turn(main) {
  if (visit) {
    // Heights of rows that were never rendered are estimates, so the row at the top is the reliable position.
    const row = rowsOf(main).find((each) => each.getBoundingClientRect().bottom > 0);
    const anchor = row ? { name: nameOf(row), at: row.getBoundingClientRect().top } : null;
    note({ top: scrollY, anchor });
  }
  if (!history.state?.visit) history.replaceState({ visit: crypto.randomUUID(), inside: visit !== null }, "");
  visit = history.state.visit;
  return { top: 0, anchor: null, ...positions.get(history.state.visit) };
}

/**
 * Scrolls to the stored position. A page that is still loading gets there when it is long enough.
 *
 * @param {HTMLElement} main
 * @param {Position} position
 */
export function restore(main, { top, anchor }) {
  const there = () => {
    const row = anchor && rowsOf(main).find((each) => nameOf(each) === anchor.name);
    scrollTo(0, row && top > 0 ? scrollY + row.getBoundingClientRect().top - anchor.at : top);
    return row ? Math.abs(row.getBoundingClientRect().top - anchor.at) < 2 : Math.abs(scrollY - top) < 2;
  };
  scrollTo(0, top);
  if (top === 0) return;
  const done = new AbortController();
  const growth = new ResizeObserver(() => there() && done.abort());
  done.signal.addEventListener("abort", () => growth.disconnect());
  // An action of the reader takes precedence.
  for (const name of ["wheel", "touchstart", "keydown", "hashchange"])
    addEventListener(name, () => done.abort(), { signal: done.signal, passive: true });
  if (!there()) growth.observe(main);
}

/**
 * Goes back to where the reader came from, if that was a page of the console.
 *
 * @param {MouseEvent} event
 */
export function back(event) {
  if (!history.state?.inside || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.back();
}
