/** Light, dark, or as the system has it. Remembered. */

const STORED = "headrace.theme";
export type Theme = "system" | "light" | "dark";
const dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");

function stored(): Theme {
  const value = globalThis.localStorage?.getItem(STORED);
  return value === "light" || value === "dark" ? value : "system";
}

class ThemeChoice {
  choice = $state<Theme>(stored());
  #systemDark = $state(dark?.matches ?? false);
  shown = $derived<"light" | "dark">(this.choice === "system" ? (this.#systemDark ? "dark" : "light") : this.choice);

  constructor() {
    dark?.addEventListener("change", (event) => (this.#systemDark = event.matches));
  }

  /** To the other one; back to "system" when that is what the system has anyway. */
  toggle(): void {
    const next = this.shown === "dark" ? "light" : "dark";
    this.choice = next === (this.#systemDark ? "dark" : "light") ? "system" : next;
    if (this.choice === "system") localStorage.removeItem(STORED);
    else localStorage.setItem(STORED, this.choice);
  }
}

export const theme = new ThemeChoice();
