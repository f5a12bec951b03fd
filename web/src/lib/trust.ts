/** Late records and drift, as numbers over time. */

import type { Points } from "./series";
import { json } from "./format";
import type { CareHistory, LateRow, Revision } from "./types";

/** How many came too late in each stretch of time, by when they arrived (the stream's time); empty stretches are 0. */
export function lateOverTime(late: LateRow[], most = 60): Points {
  const times = late.map((row) => row.stream_time_ms).filter((ms) => ms > 0);
  if (times.length === 0) return { xs: [], ys: [] };
  const first = Math.min(...times);
  const last = Math.max(...times);
  const step = STEPS.find((size) => (last - first) / size < most) ?? STEPS.at(-1)!;
  const begin = Math.floor(first / step) * step;
  const counts = new Array<number>(Math.min(10_000, Math.floor((last - begin) / step) + 1)).fill(0);
  for (const ms of times) {
    const at = Math.floor((ms - begin) / step);
    if (at < counts.length) counts[at]! += 1;
  }
  return { xs: counts.map((_, at) => begin + at * step), ys: counts };
}

const STEPS = [10, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400].map((s) => s * 1000);

/** Late records that a repair has counted: of each row what its newest revision says. */
export function repaired(newestFirst: Revision[]): number {
  const rows = new Map<string, number>();
  for (const one of newestFirst) {
    const row = json([one.key, one.window.start_ms, one.window.end_ms]);
    if (!rows.has(row)) rows.set(row, one.late);
  }
  return [...rows.values()].reduce((sum, late) => sum + late, 0);
}

/** From totals to how many came between two samples. A total that fell begins anew. */
export function increases(totals: number[]): number[] {
  return totals.map((value, at) => (at === 0 ? 0 : value >= totals[at - 1]! ? value - totals[at - 1]! : value));
}

/** What a check of a view says first. */
export function checkedSays(rows: number, drifted: number, rounds: number): string {
  if (rounds === 0) return "No row has been computed again yet.";
  if (drifted > 0) return `${drifted.toLocaleString("en")} ${drifted === 1 ? "row is" : "rows are"} not what the log says.`;
  if (rows === 0) return "No row could be computed again.";
  return `${rows.toLocaleString("en")} rows were computed again from the log: all the same ✓`;
}

export function careSeries(past: CareHistory): { xs: number[]; checked: number[]; drifted: number[]; late: number[] } {
  return { xs: past.times_ms, checked: increases(past.checked), drifted: past.drifted, late: increases(past.late) };
}
