/** What a deployment and a plan say, in words. */

import { count, duration, plural } from "./format";
import type { Build, Comparison, Deployment, PlannedChange, Version } from "./types";

/** Of the newest deployment that changed a view; null if none did. */
export function deploymentOf(name: string, deployments: Deployment[]): Deployment | null {
  return deployments.find((one) => one.items.some((item) => item.name === name && item.version !== item.before)) ?? null;
}

export function isRunning(deployment: Deployment): boolean {
  return ["building", "comparing", "waiting", "switching"].includes(deployment.stage);
}

export function buildSays(build: Build): string {
  const done = Math.floor((100 * build.read) / Math.max(1, build.read + build.left));
  if (build.left === 0) return `${build.name}: has read everything`;
  const left = build.seconds_left === null ? "" : `, about ${duration(build.seconds_left * 1000)} left`;
  return `${build.name}: ${done} %, ${count(Math.round(build.rows_per_second))} rows/s${left}`;
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
  const about = change.seconds === null ? "" : `, about ${duration(change.seconds * 1000)}`;
  const cost = change.replays > 0 ? ` (replays ${plural(change.replays, "event")}${about})` : "";
  return `${change.verdict}${cost}${change.reason ? `: ${change.reason}` : ""}`;
}

/** Where each version stands on a line of time, from the first to now; in percent. */
export function timeLine(versions: Version[], now: number): { version: number; state: Version["state"]; at: number }[] {
  const known = versions.map((one) => one.since_ms).filter((ms) => ms > 0);
  const first = Math.min(now - 1, ...known);
  return versions.map((one) => ({ version: one.version, state: one.state, at: one.since_ms > 0 ? (100 * (one.since_ms - first)) / (now - first) : 0 }));
}
