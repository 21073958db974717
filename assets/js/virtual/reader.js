// @ts-check
// The reader's place in a long list: its end, or an item that stays in place while items above it are measured.

import { Heights } from "./heights.js";

/** @typedef {{ key: number, offset: number }} Place in a list: an item, and how far below its beginning */

/** The distance from the end, in pixels, that counts as the end. */
const NEAR = 24;

/** @template {object} Item */
export class Reader {
  /** @type {(Place & { index: number }) | null} */
  #anchor = null;
  /** The position that we set ourselves. Any other is the reader's, noticed before its event arrives. */
  #put = 0;

  /**
   * @param {HTMLElement} scroller
   * @param {Heights<Item>} heights
   * @param {(item: Item) => number} key
   * @param {Place | null} start the place that a reader left
   */
  constructor(scroller, heights, key, start) {
    this.scroller = scroller;
    this.heights = heights;
    this.key = key;
    this.atEnd = !start;
    /** The stored position, until its part of the list is loaded; dropped when the reader scrolls. */
    this.wanted = start;
  }

  /** Notes an action of the reader. */
  notice() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    if (Math.abs(scrollTop - this.#put) < 1) return;
    this.wanted = null;
    this.atEnd = scrollTop + clientHeight >= scrollHeight - NEAR;
    this.keep(scrollTop);
  }

  /** @param {number} top where the list was put */
  keep(top) {
    this.#put = top;
    const found = this.heights.at(top);
    this.#anchor = found && { index: found.index, key: this.key(found.item), offset: found.offset };
  }

  /** Stays at this position, even if it is the end. */
  stay() {
    this.atEnd = false;
    this.keep(this.scroller.scrollTop);
  }

  /** Goes to the end, and stays there. */
  follow() {
    this.#put = this.scroller.scrollTop;
    this.atEnd = true;
  }

  /**
   * Scrolls to the reader's position.
   *
   * @param {Item[]} list
   * @param {number} total
   */
  restore(list, total) {
    const { scroller, heights } = this;
    const wanted = this.wanted;
    const found = wanted ? list.findIndex((item) => this.key(item) === wanted.key) : -1;
    if (wanted && found >= 0) {
      scroller.scrollTop = heights.offset(found) + wanted.offset;
      // Once the items above it are measured, it stays in place.
      this.wanted = null;
    } else if (this.atEnd) scroller.scrollTop = total;
    else {
      const at = this.#indexIn(list);
      if (at >= 0) scroller.scrollTop = heights.offset(at) + (this.#anchor?.offset ?? 0);
    }
    return scroller.scrollTop;
  }

  /**
   * The index of the reader's item.
   *
   * @param {Item[]} list
   */
  #indexIn(list) {
    const anchor = this.#anchor;
    if (!anchor || !list[anchor.index]) return -1;
    if (this.key(list[anchor.index]) === anchor.key) return anchor.index;
    return list.findIndex((item) => this.key(item) === anchor.key);
  }

  /**
   * The reader's place; nothing at the end.
   *
   * @returns {Place | null}
   */
  get place() {
    return this.atEnd || !this.#anchor ? null : { key: this.#anchor.key, offset: this.#anchor.offset };
  }
}
