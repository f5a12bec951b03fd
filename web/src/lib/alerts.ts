/** Alerts in words. */

import type { Said } from "./answers";
import { ago, count, list, moment, plural } from "./format";
import { href } from "./router.svelte";
import type { Alert, AlertDestination, Alerts, AlertSubject } from "./types-alerts";

export function alertsSays(found: Alerts): Said {
  const firing = found.alerts.filter((alert) => alert.state === "firing");
  if (firing.length > 0) return { tone: "bad", text: `Yes: ${list(firing.map((alert) => alert.name))} ${firing.length === 1 ? "fires" : "fire"}.` };
  const problem = found.problems[0];
  if (problem) return { tone: "bad", text: `Nobody would know: ${problem.file}:${problem.line}: ${problem.message}` };
  const untold = found.alerts.filter((alert) => alert.destinations.some((place) => place.waiting > 0 && place.error));
  if (untold.length > 0) return { tone: "warn", text: `No, but somebody was not told so yet: ${list(untold.map((alert) => alert.name))}.` };
  const pending = found.alerts.filter((alert) => alert.state === "pending");
  if (pending.length > 0) return { tone: "warn", text: `Perhaps: ${list(pending.map((alert) => alert.name))}, but not for long enough yet.` };
  const watching = found.alerts.filter((alert) => alert.state !== "disabled");
  if (watching.length === 0) return { tone: "idle", text: "Nobody watches: there is no alert." };
  return { tone: "ok", text: `No: ${plural(watching.length, "alert watches", "alerts watch")}, none fires.` };
}

const SEVERITY: Alert["state"][] = ["firing", "pending", "resolved", "ok", "disabled"];

export function worstFirst(alerts: Alert[]): Alert[] {
  return [...alerts].sort((a, b) => SEVERITY.indexOf(a.state) - SEVERITY.indexOf(b.state) || a.name.localeCompare(b.name));
}

export function toldSays(place: AlertDestination, now = Date.now()): string {
  if (place.waiting > 0) return `${plural(place.waiting, "notice waits", "notices wait")}${place.error ? `: ${place.error}` : ""}`;
  if (place.told_ms === null) return "not told yet";
  if (place.error) return `was never told: ${place.error}`;
  return `told ${ago(place.told_ms, now)}${place.attempts > 1 ? `, at the ${place.attempts}th try` : ""}`;
}

export function subjectSays(subject: AlertSubject, now = Date.now()): string {
  const since = subject.since_ms === null ? "" : `since ${moment(subject.since_ms, now)}`;
  const value = subject.value === null ? "" : `${count(subject.value)} now`;
  const fired = subject.fired > 0 ? `fired ${plural(subject.fired, "time")}` : "";
  return [since, value, fired].filter(Boolean).join(", ");
}

/** Where a subject can be looked at. */
export function subjectHref(alert: Alert, subject: string): string {
  if (alert.watch === "dead_letters") return href("log", subject);
  if (alert.watch === "job") return href("jobs", subject);
  if (alert.watch === "drift" || alert.watch === "late") return href("views", subject, { tab: "trust" });
  return href("queries");
}
