// @ts-check
// A button for risky decisions: it must be held, or pressed twice if holding is not possible.

import { h, announce } from "../dom.js";

/** Milliseconds to hold it, and between a first press of a key and the second. */
const HOLD = 900;
const SECOND = 4000;
const HELD = "This is risky: hold the button until it is filled";

/** A hint beside the button to hold it, for a while. */
function bubble() {
  const element = h("span", { class: "bubble", hidden: true }, HELD);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let hiding;
  const show = () => {
    element.hidden = false;
    announce(HELD);
    clearTimeout(hiding);
    hiding = setTimeout(() => (element.hidden = true), SECOND);
  };
  return { element, show };
}

/**
 * Calls `held` once a pointer has been down on the button for long enough, and `released` if it comes up before.
 * Returns a function that cancels.
 *
 * @param {HTMLButtonElement} button
 * @param {{ held: () => void, released: () => void, isBusy: () => boolean }} calls
 */
function whenHeld(button, { held, released, isBusy }) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {AbortController | null} */
  let holding = null;
  const stop = () => {
    clearTimeout(timer);
    holding?.abort();
    button.classList.remove("held");
  };
  button.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || isBusy()) return;
    stop();
    button.classList.add("held");
    timer = setTimeout(held, HOLD);
    holding = new AbortController();
    const { signal } = holding;
    const release = () => {
      stop();
      released();
    };
    button.addEventListener("pointerleave", stop, { signal });
    // A release counts anywhere, because the card may have moved meanwhile.
    addEventListener("pointercancel", stop, { capture: true, signal });
    // Only the window's own blur: the press itself blurs the element that had the focus.
    addEventListener("blur", stop, { signal });
    addEventListener("pointerup", release, { capture: true, signal });
  });
  return stop;
}

/**
 * `press` counts as one of two presses.
 *
 * @param {string} label
 * @param {() => Promise<void>} act
 */
export function guarded(label, act) {
  const words = h("span", {}, label);
  const button = h(
    "button",
    { type: "button", class: "primary hold", "aria-description": "Hold it, or press it twice" },
    h("span", { class: "fill", "aria-hidden": "true" }),
    words,
  );
  const hint = bubble();
  let busy = false;
  const run = () => {
    hint.element.hidden = true;
    stop();
    // The button was replaced under the finger: the press was meant for another one.
    if (!button.isConnected) return;
    busy = button.disabled = true;
    act().finally(() => (busy = button.disabled = false));
  };
  const stop = whenHeld(button, { held: run, released: () => busy || hint.show(), isBusy: () => busy });
  let armed = 0;
  // A click without a pointer is a key or a screen reader: the second one counts.
  const press = () => {
    if (busy) return;
    if (Date.now() - armed < SECOND) {
      armed = 0;
      return run();
    }
    armed = Date.now();
    words.textContent = `${label}: press again`;
    announce("Risky: press again to allow");
    setTimeout(() => (words.textContent = label), SECOND);
  };
  // A key that is held is one press.
  button.addEventListener("keydown", (event) => event.repeat && event.preventDefault());
  button.addEventListener("click", (event) => event.detail === 0 && press());
  button.addEventListener("contextmenu", (event) => event.preventDefault());
  return { element: h("span", { class: "holder" }, button, hint.element), press };
}
