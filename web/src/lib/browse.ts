/** Where in a topic somebody looks, and how to get from one page to the next. */

import type { RecordsPage } from "./types";

export type Jump = "latest" | "earliest" | "time" | "offset";

export interface Place {
  jump: Jump;
  /** For `time`, as `<input type="datetime-local">` has it; for `offset`, a number. */
  value: string;
  partition: number | null;
  where: string;
}

export const NEWEST: Place = { jump: "latest", value: "", partition: null, where: "" };
export const PAGE_SIZE = 50;

/** What is asked for a place: the parameters of `GET …/records`. */
export function asked(place: Place): Record<string, string> {
  const query: Record<string, string> = { limit: String(PAGE_SIZE) };
  if (place.partition !== null) query["partition"] = String(place.partition);
  if (place.where.trim()) query["where"] = place.where.trim();
  if (place.jump === "latest") query["before"] = "latest";
  else if (place.jump === "earliest") query["from"] = "earliest";
  else if (place.jump === "time") query["time"] = String(new Date(place.value).getTime());
  else {
    query["offset"] = place.value;
    query["partition"] ??= "0";
  }
  return query;
}

/** What is missing for a place to be asked for, in words; null if nothing is. */
export function missing(place: Place): string | null {
  if (place.jump === "time" && Number.isNaN(new Date(place.value).getTime())) return "Choose a date and a time.";
  if (place.jump === "offset" && !/^\d+$/.test(place.value)) return "An offset is a whole number.";
  return null;
}

export function after(page: RecordsPage, place: Place): Record<string, string> {
  return { ...filtered(place), at: page.next };
}

export function before(page: RecordsPage, place: Place): Record<string, string> {
  return { ...filtered(place), before: page.from };
}

function filtered(place: Place): Record<string, string> {
  const query: Record<string, string> = { limit: String(PAGE_SIZE) };
  if (place.where.trim()) query["where"] = place.where.trim();
  return query;
}

/** Partition → offset, of "0:48211,1:7". */
export function offsets(position: string): Map<number, number> {
  return new Map(position.split(",").filter(Boolean).map((pair) => pair.split(":").map(Number) as [number, number]));
}

/** Whether there may be records on that side of the page. */
export function hasOlder(page: RecordsPage): boolean {
  const starts = offsets(page.starts);
  return [...offsets(page.from)].some(([partition, offset]) => offset > (starts.get(partition) ?? 0));
}

export function hasNewer(page: RecordsPage): boolean {
  const ends = offsets(page.ends);
  return [...offsets(page.next)].some(([partition, offset]) => offset < (ends.get(partition) ?? 0));
}
