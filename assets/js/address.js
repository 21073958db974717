// The address: the page that it names, the page's filters, and how far each visited page was scrolled.

const POSITIONS = "positions";
/** Pages whose position is kept over a reload. */
const KEPT = 50;

const positions = new Map(JSON.parse(sessionStorage.getItem(POSITIONS) ?? "[]"));
history.scrollRestoration = "manual";

/** The path of a hash without its filters. */
export const pathOf = (hash) => (hash || "#/").split("?")[0];

/** The filters of the address, with the type of their defaults. */
export function filters(defaults) {
  const given = new URLSearchParams(location.hash.split("?")[1] ?? "");
  const read = ([name, usual]) => {
    const value = given.get(name) ?? usual;
    return [name, typeof usual === "number" ? Number(value) || usual : value];
  };
  return Object.fromEntries(Object.entries(defaults).map(read));
}

/** Writes the filters into the address, so that *Back*, a reload and a bookmark lead to the same list. */
export function keep(values, defaults) {
  const changed = Object.entries(values).filter(([name, value]) => value !== defaults[name]);
  const query = new URLSearchParams(changed).toString();
  history.replaceState(history.state, "", pathOf(location.hash) + (query ? `?${query}` : ""));
}

let visit = null;
/** Keeps something of the position in the page that is shown. */
export const note = (more) => visit && positions.set(visit, { ...positions.get(visit), ...more });
/** Finds what was kept when the reader left the page of the address, if they come back to it. */
export const noted = () => positions.get(history.state?.visit) ?? {};

addEventListener("scroll", () => note({ top: scrollY }), { passive: true });
addEventListener("pagehide", () => {
  sessionStorage.setItem(POSITIONS, JSON.stringify([...positions].slice(-KEPT)));
});

const nameOf = (element) => element.getAttribute("href") ?? element.dataset.id;

/** Leaves the page that `main` shows for the one of the address. Returns the position that the reader left there before. */
export function turn(main) {
  if (visit) {
    // Heights of rows that were never seen are guesses: the row at the top is what a reader comes back to.
    const row = [...main.querySelectorAll("[data-stop]")].find((each) => each.getBoundingClientRect().bottom > 0);
    const anchor = row ? { name: nameOf(row), at: row.getBoundingClientRect().top } : null;
    note({ top: scrollY, anchor });
  }
  if (!history.state?.visit) history.replaceState({ visit: crypto.randomUUID(), inside: visit !== null }, "");
  visit = history.state.visit;
  return positions.get(visit) ?? { top: 0, anchor: null };
}

/** Scrolls to where the reader was. A page that is still fetched gets there when it is long enough. */
export function restore(main, { top, anchor }) {
  const there = () => {
    const row = anchor && [...main.querySelectorAll("[data-stop]")].find((each) => nameOf(each) === anchor.name);
    scrollTo(0, row && top > 0 ? scrollY + row.getBoundingClientRect().top - anchor.at : top);
    return row ? Math.abs(row.getBoundingClientRect().top - anchor.at) < 2 : Math.abs(scrollY - top) < 2;
  };
  scrollTo(0, top);
  if (top === 0) return;
  const done = new AbortController();
  const growth = new ResizeObserver(() => there() && done.abort());
  done.signal.addEventListener("abort", () => growth.disconnect());
  // The reader's own wish is stronger.
  for (const name of ["wheel", "touchstart", "keydown", "hashchange"])
    addEventListener(name, () => done.abort(), { signal: done.signal, passive: true });
  if (!there()) growth.observe(main);
}

/** Goes back to where the reader came from, if that was a page of the console. */
export function back(event) {
  if (!history.state?.inside || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.back();
}
