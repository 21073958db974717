// @ts-check
// Sign-in with the code of a link, or with a token.

import * as api from "./api.js";
import { h } from "./dom.js";

/** Takes the code out of the address at once, so that no history has it. */
export function takeCode() {
  const code = /^#code=([0-9a-f]{16,})$/.exec(location.hash)?.[1] ?? null;
  if (code) history.replaceState(null, "", "/");
  return code;
}

/** @param {string} code */
export const withCode = (code) => api.post("/web/sessions", { code });

/**
 * @param {string | null} problem
 * @param {() => void} done
 */
export function view(problem, done) {
  const field = h("input", {
    type: "password",
    id: "token",
    name: "token",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
  });
  const trouble = h("p", { class: "trouble", role: "alert" }, problem ?? "");
  const form = h(
    "form",
    {
      class: "signin",
      /** @param {SubmitEvent} event */
      onsubmit: async (event) => {
        event.preventDefault();
        trouble.textContent = "";
        try {
          await api.post("/web/sessions", { token: field.value.trim() });
          done();
        } catch (error) {
          trouble.textContent = api.why(error);
          field.select();
        }
      },
    },
    h("img", { src: "/icon.svg", alt: "", width: "48", height: "48" }),
    h("h1", {}, "intercom"),
    h("p", {}, "Run this on the daemon's machine. It prints a link that signs you in:"),
    h("pre", { tabindex: "0" }, h("code", {}, "intercom console")),
    trouble,
    h("label", { for: "token" }, "Or paste a token"),
    field,
    h("button", { class: "primary" }, "Sign in"),
  );
  return h("main", { id: "main", class: "signin-page", tabindex: "-1" }, form);
}
