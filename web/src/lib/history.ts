/** The statements that were run, newest first, in this browser. */

const STORED = "headrace.sql.history";
const MOST = 100;

export interface Ran {
  sql: string;
  at: number;
  ok: boolean;
}

type Shelf = Pick<Storage, "getItem" | "setItem" | "removeItem">;

export function load(shelf: Shelf): Ran[] {
  try {
    const found: unknown = JSON.parse(shelf.getItem(STORED) ?? "[]");
    return Array.isArray(found) ? (found as Ran[]).filter((entry) => typeof entry?.sql === "string") : [];
  } catch {
    return [];
  }
}

/** Running the same again moves it to the top. */
export function remember(shelf: Shelf, ran: Ran): Ran[] {
  const kept = [ran, ...load(shelf).filter((entry) => entry.sql !== ran.sql)].slice(0, MOST);
  try {
    shelf.setItem(STORED, JSON.stringify(kept));
  } catch {
    // Full or forbidden: the history of this page is still shown.
  }
  return kept;
}

export function forget(shelf: Shelf): void {
  shelf.removeItem(STORED);
}
