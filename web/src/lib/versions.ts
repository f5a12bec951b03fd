/** A view's versions as lanes on a line of time, and each of them in words. */

import { buildSays } from "./deploy";
import { ago, duration, moment, plural } from "./format";
import type { Deployment, Layers, Version } from "./types-deploy";

export interface Segment {
  kind: "building" | "serving" | "kept" | "failed";
  /** In percent of the line. */
  from: number;
  to: number;
}

export interface Lane {
  version: Version;
  says: string;
  segments: Segment[];
}

interface Part {
  kind: Segment["kind"];
  /** In milliseconds; what nobody wrote down is null. */
  from: number | null;
  to: number;
}

/** What of a version's past lies where: built, then served and kept in turns. */
function past(version: Version, deployment: Deployment | undefined, now: number): Part[] {
  const begun = deployment?.started_ms ?? null;
  if (version.state === "failed") return [{ kind: "failed", from: begun, to: version.since_ms || now }];
  if (version.state === "building" || version.state === "caught up") return [{ kind: "building", from: begun, to: now }];
  const periods = version.served.length > 0 ? version.served : [[0, 0] as [number, number]];
  const parts: Part[] = [];
  if (begun !== null && periods[0]![0] > 0) parts.push({ kind: "building", from: begun, to: periods[0]![0] });
  periods.forEach(([from, to], at) => {
    parts.push({ kind: "serving", from: from || null, to: to || now });
    if (to) parts.push({ kind: "kept", from: to, to: periods[at + 1]?.[0] ?? now });
  });
  return parts;
}

/** Newest first. The line begins a little before the first moment that is known. */
export function lanes(versions: Version[], deployments: Deployment[], now: number): { lanes: Lane[]; start: number } {
  const of = (version: Version): Deployment | undefined => deployments.find((one) => one.id === version.deployment);
  const pasts = new Map(versions.map((version) => [version.version, past(version, of(version), now)]));
  const known = [...pasts.values()].flatMap((parts) => parts.map((part) => part.from)).filter((ms) => ms !== null);
  const ends = [...pasts.values()].flatMap((parts) => parts.map((part) => part.to)).filter((ms) => ms < now);
  const first = Math.min(now - 60_000, ...known, ...ends);
  const start = now - (now - first) * 1.15;
  const place = (ms: number): number => Math.min(100, Math.max(0, (100 * (ms - start)) / (now - start)));
  const made = versions.toSorted((a, b) => b.version - a.version).map((version) => ({
    version,
    says: versionSays(version, of(version) ?? null, now),
    segments: pasts.get(version.version)!.map((part) => ({ kind: part.kind, from: part.from === null ? 0 : place(part.from), to: place(part.to) })),
  }));
  return { lanes: made, start };
}

export function versionSays(version: Version, deployment: Deployment | null, now: number): string {
  const rows = version.rows === null ? "" : `, ${plural(version.rows, "row")}`;
  const since = version.since_ms ? ` since ${moment(version.since_ms, now)}` : "";
  const build = deployment?.builds.find((one) => one.query_id === version.query_id);
  switch (version.state) {
    case "building":
      return build ? buildSays(build).slice(build.name.length + 2) : `begun ${deployment ? ago(deployment.started_ms, now) : "just now"}`;
    case "caught up":
      return `${deployment?.stage === "waiting" ? "waits for somebody to approve" : deployment?.stage === "switching" ? "is about to serve" : "is being compared"}${rows}`;
    case "serving":
      return `serves${since || " from the beginning"}${rows}`;
    case "retired":
      return `served until ${moment(version.since_ms, now)}; kept up to date for a roll back ${left(version.kept_until_ms, now)}${rows}`;
    case "failed":
      return deployment?.detail || "its build has failed";
  }
}

function left(until: number | null, now: number): string {
  if (until === null) return "";
  return until > now ? `for ${duration(until - now)} more` : "no longer: it is about to go";
}

/** How old the batch layer is, and when it is made again. */
export function layersSay(layers: Layers, now: number): string {
  if (layers.made_ms === null) return "The batch layer is being computed.";
  const rows = layers.batch_rows === null ? "" : ` with ${plural(layers.batch_rows, "row")}`;
  const again =
    layers.refresh_ms === null
      ? " It is refreshed when asked to."
      : ` It is refreshed every ${duration(layers.refresh_ms)}, next ${layers.made_ms + layers.refresh_ms > now ? ago(layers.made_ms + layers.refresh_ms, now) : "now"}.`;
  return `The batch layer was made ${ago(layers.made_ms, now)}${rows}.${again}`;
}
