// @ts-check
// Notices of pending requests and failures: in the title, on the icon, and optionally as notifications of the browser.

import { announce } from "./dom.js";
import { on, state } from "./live.js";
import { waiting, failures, pendingClearances, pendingQuestions } from "./store.js";
import { clean, line } from "./text.js";
/** @typedef {{ id: string, session: string, words: string }} Open something that waits */

const WANTED = "notify";

export const able = () => "Notification" in window;
export const wanted = () => able() && localStorage.getItem(WANTED) === "yes" && Notification.permission === "granted";

/** @param {boolean} yes */
export async function want(yes) {
  if (yes && (await Notification.requestPermission()) !== "granted") return false;
  localStorage.setItem(WANTED, yes ? "yes" : "no");
  return yes;
}

let title = "intercom";
let count = 0;
/** @type {Set<string> | null} */
let known = null;

/** @param {string} page */
export function setTitle(page) {
  title = page ? `${page} · intercom` : "intercom";
  show();
}

function show() {
  document.title = count ? `(${count}) ${title}` : title;
}

function drawIcon() {
  const link = document.querySelector("link[rel=icon]");
  if (!(link instanceof HTMLLinkElement)) return;
  if (!count) {
    link.type = "image/svg+xml";
    link.href = "/icon.svg";
    return;
  }
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 32;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.fillStyle = "#c2410c";
  pen.beginPath();
  pen.arc(16, 16, 16, 0, 7);
  pen.fill();
  pen.fillStyle = "#fff";
  pen.font = "bold 20px sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(count > 9 ? "9+" : String(count), 16, 17);
  link.type = "image/png";
  link.href = canvas.toDataURL("image/png");
}

export function listen() {
  on("change", () => {
    /** @type {Open[]} */
    const open = [
      ...pendingClearances(state).map((each) => ({ ...each, words: `${each.risk} risk: ${line(each)}` })),
      ...pendingQuestions(state).map((each) => ({ ...each, words: `Question: ${clean(each.text)}` })),
    ];
    // Requests from before the page was opened are not announced.
    const before = known;
    const fresh = before ? open.filter((each) => !before.has(each.id)) : [];
    known = new Set(open.map((each) => each.id));
    for (const each of fresh) {
      announce(`Waiting for you, ${each.words}`);
      if (wanted() && document.hidden) notify(each);
    }
    const now = waiting(state) + failures(state);
    if (now === count) return;
    count = now;
    show();
    drawIcon();
  });
}

/** @param {Open} each */
function notify(each) {
  try {
    const note = new Notification(each.words, {
      tag: each.id,
      icon: "/icon.svg",
      body: clean(state.sessions.get(each.session)?.name ?? ""),
    });
    note.onclick = () => {
      focus();
      location.hash = `#/s/${each.session}`;
      note.close();
    };
  } catch {
    // Some browsers only show them from a worker.
  }
}
