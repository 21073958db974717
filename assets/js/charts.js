// Charts about the human loop: bars, drawn by hand, with the same numbers in a table.

import * as api from "./api.js";
import { h, svg } from "./dom.js";
import { on, state } from "./live.js";
import * as address from "./address.js";
import { clean, plural, short, span } from "./text.js";

const [WIDTH, HEIGHT, PAD] = [340, 120, 2];
const SPANS = [
  [1, "an hour"],
  [24, "a day"],
  [168, "a week"],
  [720, "a month"],
];

const USUAL = { hours: 24, session: "" };

function when(at, stretch) {
  const time = new Date(at);
  const hour = time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return stretch >= 3600 ? `${time.toLocaleDateString([], { day: "numeric", month: "short" })} ${hour}` : hour;
}

/** `points`: `[{at, value}]`; `say` puts a value into words. */
function bars({ title, note, points, say, stretch }) {
  const top = Math.max(...points.map((point) => point.value ?? 0), 0);
  const step = (WIDTH - 2 * PAD) / points.length;
  const shapes = points.map((point, n) => {
    const height = top ? Math.max(point.value ? 2 : 0, ((point.value ?? 0) / top) * (HEIGHT - 40)) : 0;
    const x = PAD + n * step + step * 0.12;
    return svg(
      "rect",
      {
        class: "bar",
        x: x.toFixed(1),
        y: (HEIGHT - 18 - height).toFixed(1),
        width: (step * 0.76).toFixed(1),
        height: height.toFixed(1),
        rx: "1.5",
      },
      svg("title", {}, `${when(point.at, stretch)}: ${say(point.value)}`),
    );
  });
  const labels = [0, Math.floor(points.length / 2), points.length - 1].map((n, k) =>
    svg(
      "text",
      {
        class: "axis",
        x: String(PAD + (n + 0.5) * step),
        y: String(HEIGHT - 4),
        "text-anchor": ["start", "middle", "end"][k],
      },
      when(points[n].at, stretch),
    ),
  );
  const peak = top ? svg("text", { class: "axis", x: String(PAD), y: "11" }, `at most ${say(top)}`) : null;
  const base = svg("line", {
    class: "base",
    x1: String(PAD),
    x2: String(WIDTH - PAD),
    y1: String(HEIGHT - 17.5),
    y2: String(HEIGHT - 17.5),
  });
  const filled = points.filter((point) => point.value);
  const list = h(
    "details",
    { class: "more" },
    h("summary", {}, "As a table"),
    h(
      "div",
      { class: "scroll", tabindex: "0" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "From"), h("th", { scope: "col" }, title))),
        h(
          "tbody",
          {},
          filled.map((point) =>
            h(
              "tr",
              {},
              h("td", { class: "tabular" }, when(point.at, 3600)),
              h("td", { class: "tabular" }, say(point.value)),
            ),
          ),
        ),
      ),
    ),
  );
  return h(
    "section",
    { class: "panel chart" },
    h("h2", {}, title),
    h("p", { class: "faint" }, note),
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${note}` },
      base,
      shapes,
      labels,
      peak,
    ),
    filled.length ? list : h("p", { class: "faint" }, "Nothing in this time."),
  );
}

const seconds = (value) => (value == null ? "–" : value < 10 ? `${value.toFixed(1)}s` : span(value * 1000));

function draw(figures) {
  const stretch = figures.stretch_seconds;
  const of = (name) => figures.stretches.map((each) => ({ at: each.at, value: each[name] ?? 0 }));
  const perMinute = figures.stretches.map((each) => ({ at: each.at, value: (each.events * 60) / stretch }));
  const rate = (value) => `${value >= 10 ? Math.round(value).toLocaleString() : value.toFixed(1)} per minute`;
  const numbers = [
    [seconds(figures.median_seconds), "median to a decision"],
    [seconds(figures.ninetieth_seconds), "nine of ten within"],
    [String(figures.decided), "decided by people"],
    [seconds(figures.blocked_seconds), "agents waited"],
    [figures.events.toLocaleString(), "events"],
  ];
  return [
    h(
      "div",
      { class: "figures" },
      numbers.map(([value, label]) =>
        h("div", { class: "figure" }, h("strong", { class: "tabular" }, value), h("span", { class: "faint" }, label)),
      ),
    ),
    h(
      "div",
      { class: "charts" },
      bars({
        title: "Time to decision",
        note: `Median of ${plural(figures.decided, "decision")} by people`,
        points: of("median_seconds"),
        say: seconds,
        stretch,
      }),
      bars({
        title: "Blocked agent-minutes",
        note: `${seconds(figures.blocked_seconds)} in all that agents waited for people`,
        points: of("blocked_seconds"),
        say: seconds,
        stretch,
      }),
      bars({
        title: "Events per minute",
        note: `${figures.events.toLocaleString()} in all`,
        points: perMinute,
        say: rate,
        stretch,
      }),
    ),
  ];
}

export function view() {
  const wish = address.filters(USUAL);
  const place = h("div", {});
  const set = (name, value) => {
    wish[name] = typeof USUAL[name] === "number" ? Number(value) : value;
    address.keep(wish, USUAL);
    load();
  };
  const pick = (name, label, options, current) => {
    const select = h(
      "select",
      { "aria-label": label, onchange: () => set(name, select.value) },
      options.map(([value, words]) =>
        h("option", { value: String(value), selected: String(value) === String(current) }, words),
      ),
    );
    return select;
  };
  const sessions = [...state.sessions.values()].sort((a, b) => b.created_at.localeCompare(a.created_at)).slice(0, 200);
  const session = pick(
    "session",
    "Session",
    [["", "All sessions"], ...sessions.map((each) => [each.id, each.name ? clean(each.name) : short(each.id)])],
    wish.session,
  );
  const hours = pick("hours", "How far back", SPANS, wish.hours);
  let turn = 0;
  async function load() {
    const mine = (turn += 1);
    try {
      const query = `hours=${wish.hours}${wish.session ? `&session=${wish.session}` : ""}`;
      const figures = await api.get(`/figures?${query}`);
      if (mine !== turn) return; // something else is wanted by now
      // A table that somebody reads stays open.
      const open = [...place.querySelectorAll(".chart")].map((chart) => Boolean(chart.querySelector("details[open]")));
      place.replaceChildren(...draw(figures));
      place.querySelectorAll(".chart").forEach((chart, n) => {
        const table = chart.querySelector("details");
        if (table) table.open = open[n] ?? false;
      });
    } catch (error) {
      if (mine !== turn) return;
      place.replaceChildren(h("p", { class: "trouble" }, api.why(error)));
    }
  }
  load();
  let due = null;
  const off = on("change", () => {
    due ??= setTimeout(() => ((due = null), load()), 15000);
  });
  const element = h(
    "div",
    { class: "page" },
    h("div", { class: "row head" }, h("h1", {}, "Charts"), h("span", { class: "grow" }), session, hours),
    place,
  );
  return { element, title: "Charts", close: () => (off(), clearTimeout(due)) };
}
