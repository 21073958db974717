// @ts-check
// A bar chart in SVG, with the same numbers in a table.

import { h, svg } from "../dom.js";
import { row, table } from "../table.js";

/** @typedef {{ at: string, value: number }} Point */
/** @typedef {(value: number) => string} Say puts a value into words */
/** @typedef {{ title: string, note: string, points: Point[], say: Say, stretch: number }} Chart `stretch` in seconds */

const [WIDTH, HEIGHT, PAD] = [340, 120, 2];

/**
 * @param {string} at
 * @param {number} stretch
 */
function when(at, stretch) {
  const time = new Date(at);
  const hour = time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return stretch >= 3600 ? `${time.toLocaleDateString([], { day: "numeric", month: "short" })} ${hour}` : hour;
}

/**
 * @param {Chart} chart
 * @param {number} top
 */
function shapes({ points, say, stretch }, top) {
  const step = (WIDTH - 2 * PAD) / points.length;
  return points.map(({ at, value }, n) => {
    const height = top ? Math.max(value ? 2 : 0, (value / top) * (HEIGHT - 40)) : 0;
    const place = {
      x: (PAD + n * step + step * 0.12).toFixed(1),
      y: (HEIGHT - 18 - height).toFixed(1),
      width: (step * 0.76).toFixed(1),
      height: height.toFixed(1),
    };
    return svg("rect", { class: "bar", ...place, rx: "1.5" }, svg("title", {}, `${when(at, stretch)}: ${say(value)}`));
  });
}

/**
 * The times of the first, the middle and the last stretch.
 *
 * @param {Chart} chart
 */
function axis({ points, stretch }) {
  const step = (WIDTH - 2 * PAD) / points.length;
  const ends = [0, Math.floor(points.length / 2), points.length - 1];
  return ends.map((n, k) => {
    const place = { x: String(PAD + (n + 0.5) * step), y: String(HEIGHT - 4) };
    const anchor = ["start", "middle", "end"][k];
    return svg("text", { class: "axis", ...place, "text-anchor": anchor }, when(points[n].at, stretch));
  });
}

/** @param {Chart} chart */
function numbers({ title, points, say }) {
  const filled = points.filter((point) => point.value);
  if (!filled.length) return h("p", { class: "faint" }, "No data in this time range.");
  const tabular = (/** @type {string} */ words) => h("span", { class: "tabular" }, words);
  const rows = filled.map((point) => row(tabular(when(point.at, 3600)), tabular(say(point.value))));
  return h("details", { class: "more" }, h("summary", {}, "As a table"), table(["From", title], rows));
}

/** @param {Chart} chart */
export function bars(chart) {
  const { title, note, points, say } = chart;
  const top = Math.max(...points.map((point) => point.value), 0);
  const y = String(HEIGHT - 17.5);
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${note}` },
    svg("line", { class: "base", x1: String(PAD), x2: String(WIDTH - PAD), y1: y, y2: y }),
    shapes(chart, top),
    axis(chart),
    top > 0 && svg("text", { class: "axis", x: String(PAD), y: "11" }, `at most ${say(top)}`),
  );
  const about = h("p", { class: "faint" }, note);
  return h("section", { class: "panel chart" }, h("h2", {}, title), about, picture, numbers(chart));
}
