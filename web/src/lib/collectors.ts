/** Collectors in words. */

import type { Said } from "./answers";
import { ago, count, list, rate } from "./format";
import type { Collector, TrialResult } from "./types-collect";

export function collectorsSay(collectors: Collector[]): Said | null {
  const broken = collectors.filter((one) => one.problem);
  if (broken.length > 0) return { tone: "bad", text: `${list(broken.map((one) => one.file))} ${broken.length === 1 ? "is" : "are"} wrong.` };
  const failed = collectors.filter((one) => one.state === "failed");
  if (failed.length > 0) return { tone: "bad", text: `${list(failed.map((one) => one.name))} ${failed.length === 1 ? "has" : "have"} failed.` };
  const waiting = collectors.filter((one) => one.state === "waiting");
  if (waiting.length > 0) return { tone: "warn", text: `${list(waiting.map((one) => one.name))} ${waiting.length === 1 ? "waits" : "wait"}.` };
  return null;
}

export function collectorSays(one: Collector): Said {
  if (one.problem) return { tone: "bad", text: one.type ? "Its file is wrong: it goes on as it was before." : "No: its file is wrong." };
  if (one.state === "disabled") return { tone: "idle", text: "No: its file says `enabled = false`." };
  if (one.state === "failed") return { tone: "bad", text: `No: ${one.detail || one.last_error || "it has failed"}.` };
  if (one.state === "waiting") return { tone: "warn", text: `Not yet: ${one.detail || "it waits"}.` };
  const lost = lostSays(one);
  if (one.rate > 0) return { tone: lost ? "warn" : "ok", text: `Yes: ${rate(one.rate)}${one.topic ? ` into ${one.topic}` : ""}.${lost}` };
  if (one.received === 0) return { tone: "idle", text: "It is ready; nothing has come yet." };
  return { tone: "idle", text: `Nothing in the last seconds${one.last_event_ms ? `, the last ${ago(one.last_event_ms)}` : ""}.${lost}` };
}

/** What did not get in, if anything. */
function lostSays(one: Collector): string {
  const parts = [
    one.rejected > 0 ? `${count(one.rejected)} rejected` : "",
    one.shed > 0 ? `${count(one.shed)} shed` : "",
    one.refused > 0 ? `${count(one.refused)} refused` : "",
  ].filter(Boolean);
  return parts.length > 0 ? ` ${list(parts)}.` : "";
}

export function trialSays(result: TrialResult): Said {
  if (result.outcome === "accepted") {
    return { tone: "ok", text: `Taken${result.offset === null ? "" : `, at ${result.partition}:${result.offset}`}.` };
  }
  const reasons = result.rejected.map((one) => one.reason).join("; ");
  if (result.outcome === "rejected") return { tone: "bad", text: `Rejected: ${reasons}` };
  return { tone: "warn", text: result.outcome === "shed" ? "Left out by [shed]." : "Known already." };
}

/** An agent's parts, each with what it has counted, by Flume's names. */
export function componentRows(components: Collector["components"]): { name: string; counted: string }[] {
  return Object.entries(components).map(([name, counters]) => {
    const happened = Object.entries(counters).filter(([, value]) => value > 0);
    return { name, counted: happened.map(([counter, value]) => `${counter} ${count(value)}`).join(", ") || "nothing yet" };
  });
}

/** The settings of a file, a line each, tables by their names. */
export function settingRows(settings: Record<string, unknown>, before = ""): { name: string; value: string }[] {
  return Object.entries(settings).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? settingRows(value as Record<string, unknown>, `${before}${name}.`)
      : isDefault(value) ? [] : [{ name: before + name, value: shown(value) }],
  );
}

const isDefault = (value: unknown): boolean => value === null || value === "" || (Array.isArray(value) && value.length === 0);
const shown = (value: unknown): string => (Array.isArray(value) ? value.map(String).join(", ") : String(value));

/** Points of a line that fills a box; nothing moves below zero. */
export function sparkline(values: number[], width: number, height: number, most = 60): string {
  const last = values.slice(-most);
  const top = Math.max(...last, 0);
  if (last.length < 2 || top === 0) return `0,${height} ${width},${height}`;
  return last.map((value, at) => `${round((at / (last.length - 1)) * width)},${round(height - (value / top) * height)}`).join(" ");
}

const round = (value: number): number => Math.round(value * 10) / 10;
