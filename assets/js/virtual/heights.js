// @ts-check
// The heights and positions of a long list's items. Heights are estimated, then measured and remembered.

const GUESS = 44;
/** Stored in the item itself: looking up a hundred thousand heights per frame would be slow. */
const HEIGHT = Symbol("height");

/** @typedef {object & { [HEIGHT]?: number }} Measured an item that may know its height */

/** @template {object} Item */
export class Heights {
  /**
   * The list that the offsets belong to.
   *
   * @type {{ list: Item[], length: number }}
   */
  #placed = { list: [], length: 0 };
  #offsets = new Float64Array(1);
  /** True if a height has changed since. */
  #stale = false;

  /**
   * Remembers a height. Returns true if it has changed.
   *
   * @param {Item & Measured} item
   * @param {number} height
   */
  measure(item, height) {
    if (!height || item[HEIGHT] === height) return false;
    item[HEIGHT] = height;
    this.#stale = true;
    return true;
  }

  /**
   * Positions all items. Returns their total height.
   *
   * @param {Array<Item & Measured>} list
   */
  place(list) {
    const { length } = list;
    if (!this.#stale && this.#placed.list === list && this.#placed.length === length) return this.#offsets[length];
    this.#stale = false;
    this.#placed = { list, length };
    if (this.#offsets.length < length + 1) this.#offsets = new Float64Array(Math.ceil((length + 1) * 1.5));
    const offsets = this.#offsets;
    for (let n = 0; n < length; n += 1) offsets[n + 1] = offsets[n] + (list[n][HEIGHT] ?? GUESS);
    return offsets[length];
  }

  /** @param {number} index */
  offset(index) {
    return this.#offsets[index];
  }

  /**
   * Finds the first item that ends below this.
   *
   * @param {number} y
   */
  find(y) {
    let [low, high] = [0, this.#placed.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#offsets[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /**
   * The item at a height, and the offset from its top.
   *
   * @param {number} y
   */
  at(y) {
    const index = Math.min(this.find(y), this.#placed.length - 1);
    return index < 0 ? null : { index, item: this.#placed.list[index], offset: y - this.#offsets[index] };
  }
}
