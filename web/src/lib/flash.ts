/** Lights a cell up for a moment when its text changes. */

const still = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)");

export function flash(node: HTMLElement, text: string): { update: (text: string) => void } {
  let last = text;
  return {
    update(next) {
      if (next === last) return;
      last = next;
      if (still?.matches) return;
      node.animate([{ boxShadow: "inset 0 0 0 99px var(--flash)" }, { boxShadow: "inset 0 0 0 99px transparent" }], { duration: 1100, easing: "ease-out" });
    },
  };
}
