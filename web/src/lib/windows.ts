/** Windows and the columns that tell them, and what of a view can be charted. */

import { duration, isMoment, isNumeric, raw, toMs } from "./format";
import type { LiveRow } from "./rows";
import type { Column, Value } from "./types";

const START = /^window_?start$/i;
const BOUND = /^window_?(start|end)$/i;

/** A window as the API describes it, in words. */
export function windowWords(window: unknown): string {
  if (typeof window === "string") return window.toLowerCase();
  if (typeof window !== "object" || window === null) return "";
  const of = window as Record<string, unknown>;
  const kind = String(of["kind"] ?? of["type"] ?? "window").toLowerCase();
  const size = of["size_ms"] ?? of["size"];
  const advance = of["advance_ms"] ?? of["advance"];
  const hop = typeof advance === "number" && advance !== size ? ` every ${duration(advance)}` : "";
  return `${kind}${typeof size === "number" ? ` ${duration(size)}` : ""}${hop}`;
}

export interface Chartable {
  /** Numbers that are not part of the key. */
  values: string[];
  keys: string[];
  windowStart: string | null;
}

export function chartable(columns: Column[], keys: readonly string[]): Chartable {
  const named = new Set(keys);
  return {
    values: columns.filter(({ name, type }) => isNumeric(type) && !named.has(name) && !BOUND.test(name)).map(({ name }) => name),
    keys: columns.filter(({ name }) => named.has(name) && !BOUND.test(name)).map(({ name }) => name),
    windowStart: columns.find(({ name }) => START.test(name))?.name ?? null,
  };
}

export interface NamedSeries {
  label: string;
  values: (number | null)[];
}

/** A row's key as a label: its key columns, without the window. */
export function labelOf(row: LiveRow, columns: Column[], keys: string[]): string {
  return columns.flatMap(({ name }, at) => (keys.includes(name) ? [raw(row.cells[at])] : [])).join(" · ") || "all";
}

/**
 * The same labels in an order that does not jump: one that was there keeps its place, and with it its colour; a new one
 * takes the place of one that left.
 */
export function keepPlaces(before: readonly string[], now: readonly string[]): string[] {
  const wanted = new Set(now);
  const fresh = now.filter((label) => !before.includes(label));
  const kept = before.flatMap((label) => (wanted.has(label) ? [label] : fresh.length > 0 ? [fresh.shift()!] : []));
  return [...kept, ...fresh];
}

/** The largest values now, for a table without windows. */
export function topBars(rows: LiveRow[], columns: Column[], of: Chartable, value: string, most: number): { label: string; value: number }[] {
  const at = columns.findIndex(({ name }) => name === value);
  return rows
    .map((row) => ({ label: labelOf(row, columns, of.keys), value: Number(row.cells[at] ?? 0) }))
    .sort((a, b) => b.value - a.value || a.label.localeCompare(b.label))
    .slice(0, most);
}

/** One line per key over its windows: the `most` keys with the largest sum, or the one asked for. */
export function windowSeries(
  rows: LiveRow[],
  columns: Column[],
  of: Chartable,
  value: string,
  { most = 8, windows = 60, key = null as string | null } = {},
): { xs: number[]; series: NamedSeries[] } {
  const startAt = columns.findIndex(({ name }) => name === of.windowStart);
  const valueAt = columns.findIndex(({ name }) => name === value);
  const byKey = new Map<string, Map<number, number>>();
  const starts = new Set<number>();
  for (const row of rows) {
    const label = labelOf(row, columns, of.keys);
    const start = toMs(row.cells[startAt]);
    if (!Number.isFinite(start)) continue;
    starts.add(start);
    if (key !== null && label !== key) continue;
    let points = byKey.get(label);
    if (!points) byKey.set(label, (points = new Map()));
    points.set(start, Number(row.cells[valueAt] ?? 0));
  }
  const xs = [...starts].sort((a, b) => a - b).slice(-windows);
  const from = xs[0] ?? 0;
  const sum = (points: Map<number, number>): number => [...points].reduce((total, [start, one]) => total + (start >= from ? one : 0), 0);
  const series = [...byKey]
    .map(([label, points]) => ({ label, points, sum: sum(points) }))
    .sort((a, b) => b.sum - a.sum || a.label.localeCompare(b.label))
    .slice(0, most)
    .map(({ label, points }) => ({ label, values: xs.map((start) => points.get(start) ?? null) }));
  return { xs, series };
}

/** What of a query's answer can be charted: a moment is the axis, words are keys, numbers are values. */
export function resultChartable(columns: Column[]): Chartable {
  const moments = columns.filter(({ name, type }) => isMoment(name, type) && !/end$/i.test(name));
  const keys = columns.filter(({ name, type }) => !isMoment(name, type) && !isNumeric(type)).map(({ name }) => name);
  const values = columns.filter(({ name, type }) => isNumeric(type) && !isMoment(name, type)).map(({ name }) => name);
  return { keys, values, windowStart: moments[0]?.name ?? null };
}

/** Of a stream of changes the newest row of each key, which comes first. */
export function resultRows(rows: { id: string; cells: Value[] }[], columns: Column[], of: Chartable): LiveRow[] {
  const kept = new Map<string, LiveRow>();
  const startAt = columns.findIndex(({ name }) => name === of.windowStart);
  for (const { cells } of rows) {
    const row = { id: "", cells, revision: 0 };
    const id = `${labelOf(row, columns, of.keys)}\u0000${raw(cells[startAt])}`;
    if (of.keys.length === 0 && startAt < 0) kept.set(String(kept.size + 1), { ...row, id });
    else if (!kept.has(id)) kept.set(id, { ...row, id });
  }
  return [...kept.values()];
}
