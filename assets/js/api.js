// Calls of the daemon's API, as the person who is signed in.

import { localTimes } from "./text.js";

export class Refused extends Error {
  constructor(status, body) {
    const { code, message, hint } = body?.error ?? {};
    super(message ?? `the daemon answered ${status}`);
    Object.assign(this, { status, code: code ?? "failed", hint: hint ?? null, body });
  }
}

export class Unreachable extends Error {}

/** `X-Intercom` shows that our own page asks: no other can send it. */
async function call(method, path, body, options = {}) {
  const headers = { accept: "application/json", "x-intercom": "1", ...options.headers };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(`/api/v1${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: options.signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable("the daemon cannot be reached");
  }
  const text = await response.text();
  let parsed = null;
  try {
    parsed = text ? JSON.parse(text) : null;
  } catch {
    // A proxy's page, perhaps: the status says enough.
  }
  if (!response.ok) {
    if (response.status === 401 && path !== "/web/sessions") dispatchEvent(new Event("signed-out"));
    throw new Refused(response.status, parsed);
  }
  return parsed;
}

export const get = (path, options) => call("GET", path, undefined, options);
/** Repeating it with the same key does nothing twice. */
export const post = (path, body = {}, key) =>
  call("POST", path, body, key ? { headers: { "idempotency-key": key } } : {});
export const del = (path) => call("DELETE", path);

/** All pages of a list, up to a bound. */
export async function all(path, most = 2000) {
  const items = [];
  let cursor = null;
  do {
    const joined = `${path}${path.includes("?") ? "&" : "?"}limit=1000${cursor ? `&cursor=${cursor}` : ""}`;
    const page = await get(joined);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < most);
  return items;
}

/** What went wrong, for people. */
export const why = (error) => localTimes(error.hint ? `${error.message}: ${error.hint}` : error.message);
