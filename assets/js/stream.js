// @ts-check
// The parser of server-sent events from pieces. Pure.

/** @import { LoggedEvent } from "../types/models" */

/** `read(piece)` returns the events that are complete. */
export function reader() {
  /** @type {string[]} */
  let rest = [];
  /** @param {string} piece */
  return (piece) => {
    // The incomplete rest is not searched again with each piece: one event may have many megabytes.
    const seam = (rest[rest.length - 1] ?? "").slice(-1) + piece;
    rest.push(piece);
    if (!seam.includes("\n\n")) return [];
    const blocks = rest.join("").split("\n\n");
    rest = blocks.splice(-1);
    return blocks.map(parse).filter((event) => event !== null);
  };
}

/**
 * @param {string} block
 * @returns {LoggedEvent | null}
 */
function parse(block) {
  const data = block
    .split("\n")
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5).trimStart());
  if (!data.length) return null;
  const id = block.split("\n").find((line) => line.startsWith("id:"));
  try {
    // The position to resume from, which may be before this event: the daemon may hold an earlier one back.
    return Object.assign(JSON.parse(data.join("\n")), id ? { resume: Number(id.slice(3)) } : {});
  } catch {
    return null;
  }
}
