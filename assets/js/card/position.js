// @ts-check
// The position of a card: near the reader, or with its head or buttons out of sight.

/** @type {WeakMap<Element, () => void>} */
const arrivals = new WeakMap();
const near = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      arrivals.get(target)?.();
    }
  },
  { rootMargin: "800px" },
);

/**
 * Calls once, when the reader gets near to a card.
 *
 * @param {HTMLElement} card
 * @param {() => void} tell
 */
export function whenNear(card, tell) {
  arrivals.set(card, tell);
  near.observe(card);
}

/** The height of the buttons and a head at the lower edge. */
const EDGE = 220;
/** @type {WeakMap<Element, HTMLElement>} */
const feet = new WeakMap();
const heads = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const above = !isIntersecting && boundingClientRect.top < EDGE;
      const foot = feet.get(target);
      foot?.classList.toggle("stuck", isIntersecting || above);
      foot?.classList.toggle("far", above);
    }
  },
  { rootMargin: `0px 0px -${EDGE}px` },
);

/**
 * Keeps the buttons of a long card in view, with its subject if its head is not; never over the head itself.
 *
 * @param {HTMLElement} head
 * @param {HTMLElement} foot
 */
export function keepInView(head, foot) {
  feet.set(head, foot);
  heads.observe(head);
}
