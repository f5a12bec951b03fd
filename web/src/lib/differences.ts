/** Which versions of a view can be compared, and which rows of their difference are asked for. */

import { ApiError } from "./api";
import type { DiffKind } from "./deploy";
import type { Difference, Version } from "./types-deploy";

export interface Chosen {
  kind: DiffKind | "all";
  /** By column of the key; empty for any. */
  key: Record<string, string>;
  /** Whether a key is given as it is, or how it begins. */
  exact: boolean;
  /** When a window begins, in milliseconds; empty for all. */
  window: string;
  column: string;
  least: string;
}

export const ALL: Chosen = { kind: "all", key: {}, exact: false, window: "", column: "", least: "" };

/** Those that are kept up to date, the oldest first. */
export function comparable(versions: Version[]): Version[] {
  return versions.filter((one) => one.state === "serving" || one.state === "caught up" || one.state === "retired");
}

/** What serves with what is to take over; or what served before with what does now. Null if there is but one. */
export function usualPair(versions: Version[]): { old: number; new: number } | null {
  const serving = versions.find((one) => one.state === "serving");
  const next = versions.findLast((one) => one.state === "caught up");
  const before = comparable(versions).filter((one) => one.state === "retired").toSorted((a, b) => b.since_ms - a.since_ms)[0];
  if (serving && next) return { old: serving.version, new: next.version };
  return serving && before ? { old: before.version, new: serving.version } : null;
}

export function filterQuery(chosen: Chosen): Record<string, string> {
  const query: Record<string, string> = {};
  if (chosen.kind !== "all") query["kind"] = chosen.kind;
  for (const [name, text] of Object.entries(chosen.key)) if (text !== "") query[`${chosen.exact ? "key" : "prefix"}.${name}`] = text;
  if (chosen.window !== "") query["window"] = chosen.window;
  if (chosen.column !== "") query["column"] = chosen.column;
  if (chosen.least !== "") query["min_delta"] = chosen.least;
  return query;
}

/** Asks until it is done; what went wrong is thrown. */
export async function whenDone(found: Difference, ask: (id: number) => Promise<Difference>, pause: () => Promise<void>, seen: (found: Difference) => void): Promise<Difference> {
  while (found.state === "waiting" || found.state === "comparing") {
    seen(found);
    await pause();
    found = await ask(found.id);
  }
  if (found.error) {
    const { detail, hint, ...rest } = found.error;
    throw new ApiError(409, { ...rest, ...(detail ? { detail } : {}), ...(hint ? { hint } : {}) });
  }
  return found;
}
