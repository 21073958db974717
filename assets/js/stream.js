// @ts-check
// Server-sent events, out of the pieces in which they come. Pure.

/** @import { LoggedEvent } from "../types/models" */

/** `read(piece)` gives the facts that are whole by now. */
export function reader() {
  /** @type {string[]} */
  let rest = [];
  /** @param {string} piece */
  return (piece) => {
    // What has not come to its end is not looked through again with each piece: one fact may have many megabytes.
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
    // Where to go on after a break, which may be before this fact: something else may not have been shown yet.
    return Object.assign(JSON.parse(data.join("\n")), id ? { resume: Number(id.slice(3)) } : {});
  } catch {
    return null;
  }
}
