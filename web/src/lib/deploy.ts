/** What a deployment and a plan say, in words. */

import { count, duration, json, plural } from "./format";
import type { Value } from "./types";
import type { Build, Comparison, Deployment, PlannedChange, Sample } from "./types-deploy";

/** Of the newest deployment that changed a view; null if none did. */
export function deploymentOf(name: string, deployments: Deployment[]): Deployment | null {
  return deployments.find((one) => one.items.some((item) => item.name === name && item.version !== item.before)) ?? null;
}

export function isRunning(deployment: Deployment): boolean {
  return ["building", "comparing", "waiting", "switching"].includes(deployment.stage);
}

/** What the files would change of a view, unless that is being made already. */
export function pendingChange(name: string, plan: PlannedChange[], current: Deployment | null): PlannedChange | null {
  const change = plan.find((one) => one.name === name && one.verdict !== "nothing") ?? null;
  const making = current && isRunning(current) && current.items.find((item) => item.name === name);
  return making && making.statement === change?.statement ? null : change;
}

export function buildSays(build: Build): string {
  if (build.left === 0 && build.done === 1) return `${build.name}: has read everything`;
  const left = build.seconds_left === null ? "" : `, about ${duration(build.seconds_left * 1000)} left`;
  const speed = build.rows_per_second > 0 ? `, ${count(Math.round(build.rows_per_second))} rows/s` : "";
  return `${build.name}: ${Math.floor(100 * build.done)} %${speed}${left}`;
}

export function stageSays(deployment: Deployment): string {
  const detail = deployment.detail ? `: ${deployment.detail}` : "";
  return `Deployment ${deployment.id} is ${deployment.paused ? "paused" : deployment.stage}${detail}`;
}

export function comparisonSays(found: Comparison): string {
  const different = found.changed + found.only_old + found.only_new;
  if (different === 0) return `v${found.old} and v${found.new} have the same ${plural(found.same, "row")}`;
  return `${count(found.same)} the same, ${count(found.changed)} changed, ${count(found.only_old)} only in v${found.old}, ${count(found.only_new)} only in v${found.new}`;
}

export function changeSays(change: PlannedChange): string {
  const why = change.reason ? `: ${change.reason}` : "";
  if (change.verdict === "serves again") {
    const once = change.replays > 0 ? `, once it has read ${plural(change.replays, "more event")}` : "";
    return `version ${change.version}, which is kept, serves again${once}${why}`;
  }
  const about = change.seconds === null ? "" : `, about ${duration(change.seconds * 1000)}`;
  const cost = change.replays > 0 ? ` (replays ${plural(change.replays, "event")}${about})` : "";
  return `${change.verdict}${cost}${why}`;
}

export type DiffKind = "changed" | "only_old" | "only_new";

export interface DiffRow {
  kind: DiffKind;
  key: Record<string, Value>;
  window: number | null;
  cells: { old: Value | undefined; new: Value | undefined; delta: number | null; differs: boolean }[];
}

/** The rows that differ, value by value; a delta where both are numbers. */
export function diffRows(samples: Sample[]): { columns: string[]; rows: DiffRow[] } {
  const columns = [...new Set(samples.flatMap((sample) => [...Object.keys(sample.old ?? {}), ...Object.keys(sample.new ?? {})]))];
  const rows = samples.map((sample): DiffRow => ({
    kind: sample.old === null ? "only_new" : sample.new === null ? "only_old" : "changed",
    key: sample.key,
    window: sample.window?.start ?? null,
    cells: columns.map((name) => {
      const [before, now] = [sample.old?.[name], sample.new?.[name]];
      const both = before !== undefined && now !== undefined;
      const differs = sample.deltas && both ? name in sample.deltas : before === undefined || now === undefined || json(before) !== json(now);
      return { old: before, new: now, delta: differs ? deltaOf(before, now) : null, differs };
    }),
  }));
  return { columns, rows };
}

function deltaOf(before: Value | undefined, now: Value | undefined): number | null {
  const isWhole = (value: Value | undefined): value is number | bigint => typeof value === "bigint" || Number.isInteger(value);
  if (isWhole(before) && isWhole(now)) return Number(BigInt(now) - BigInt(before));
  return typeof before === "number" && typeof now === "number" ? Number((now - before).toPrecision(12)) : null;
}

/** +3, −1: with its sign, which is the point of it. */
export function signed(value: number): string {
  return `${value > 0 ? "+" : value < 0 ? "−" : "±"}${Math.abs(value).toLocaleString("en", { maximumFractionDigits: 6 })}`;
}
