// @ts-check
// Calls of the daemon's API, as the signed-in person.

import { localTimes } from "./text.js";
/** @import { ApiError, PostBody, Clearance, DeleteAnswer, GetAnswer, PostAnswer, Question } from "../types/models" */

/** @typedef {{ error?: ApiError["error"], clearance?: Clearance, question?: Question }} RefusedBody */

export class Refused extends Error {
  /**
   * @param {number} status
   * @param {RefusedBody | null} body
   */
  constructor(status, body) {
    super(body?.error?.message ?? `the daemon answered ${status}`);
    this.status = status;
    this.code = body?.error?.code ?? "failed";
    this.hint = body?.error?.hint ?? null;
    this.body = body;
  }
}

export class Unreachable extends Error {}

/**
 * `X-Intercom` proves that our own page sends the request: no other page can set it.
 *
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {Record<string, string>} [more]
 */
async function call(method, path, body, more) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json", "x-intercom": "1", ...more };
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
    });
  } catch {
    throw new Unreachable("the daemon cannot be reached");
  }
  const text = await response.text();
  let parsed = null;
  try {
    parsed = text ? JSON.parse(text) : null;
  } catch {
    // Not JSON, perhaps a proxy's page: the status is enough.
  }
  if (!response.ok) {
    if (response.status === 401 && path !== "/web/sessions") dispatchEvent(new Event("signed-out"));
    throw new Refused(response.status, parsed);
  }
  return parsed;
}

/**
 * @template {string} Url
 * @param {Url} path
 * @returns {Promise<GetAnswer<Url>>}
 */
export const get = (path) => call("GET", path);

/**
 * A repetition with the same key has no second effect.
 *
 * @template {string} Url
 * @param {Url} path
 * @param {PostBody<Url>} body
 * @param {string} [key]
 * @returns {Promise<PostAnswer<Url>>}
 */
export const post = (path, body, key) => call("POST", path, body, key ? { "idempotency-key": key } : {});

/**
 * @template {string} Url
 * @param {Url} path
 * @returns {Promise<DeleteAnswer<Url>>}
 */
export const del = (path) => call("DELETE", path);

/**
 * All pages of a list, up to a bound.
 *
 * @template {string} Url
 * @param {Url} path
 * @param {number} most
 * @returns {Promise<GetAnswer<Url> extends { items: Array<infer Item> } ? Item[] : never>}
 */
export async function all(path, most) {
  /** @type {any} */
  const items = [];
  let cursor = null;
  do {
    const joined = `${path}${path.includes("?") ? "&" : "?"}limit=1000${cursor ? `&cursor=${cursor}` : ""}`;
    const page = await call("GET", joined);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < most);
  return items;
}

/**
 * An error in words for people.
 *
 * @param {unknown} error
 */
export function why(error) {
  if (error instanceof Refused && error.hint) return localTimes(`${error.message}: ${error.hint}`);
  return localTimes(error instanceof Error ? error.message : String(error));
}

/**
 * The status of a refusal.
 *
 * @param {unknown} error
 */
export const statusOf = (error) => (error instanceof Refused ? error.status : null);
