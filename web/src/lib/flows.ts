/** Collectors, functions on topics and delivery streams, as lines of one kind of list. */

import type { Said } from "./answers";
import { ago, bytes, count, duration, list, rate } from "./format";
import { href } from "./router.svelte";
import type { Collector, Delivery, TopicFunction } from "./types-collect";

export interface Flow {
  name: string;
  href?: string;
  state: string;
  /** Where records come from and where they go. */
  path: { text: string; href?: string }[];
  /** Rates of the last minutes. */
  line?: number[];
  figures: { label: string; value: string; warn?: boolean; href?: string }[];
  said: { text: string; bad: boolean }[];
}

export function collectorFlow(one: Collector, line: number[]): Flow {
  const wrong = one.problem?.split("\n")[0];
  const detail = one.state === "failed" || one.state === "waiting" ? one.detail || one.last_error : "";
  return {
    name: one.name,
    href: href("collect", one.name),
    state: one.state,
    path: [{ text: one.type || "?" }, ...(one.topic ? [{ text: one.topic, href: href("log", one.topic) }] : [])],
    line,
    figures: [
      { label: "", value: rate(one.rate) },
      { label: "taken", value: count(one.accepted) },
      { label: "rejected", value: count(one.rejected), warn: one.rejected > 0 },
      ...(one.shed + one.refused > 0 ? [{ label: "shed, refused", value: `${count(one.shed)}, ${count(one.refused)}`, warn: true }] : []),
    ],
    said: said(wrong ?? detail, Boolean(wrong) || one.state === "failed"),
  };
}

export function functionFlow({ status, lag, rate: records }: TopicFunction): Flow {
  return {
    name: status.name,
    state: status.state,
    path: [topicPart(status.topic), ...(status.to ? [topicPart(status.to)] : [])],
    figures: [
      { label: "", value: rate(records) },
      { label: "read", value: count(status.records) },
      { label: "written", value: count(status.written) },
      { label: "behind", value: count(lag), warn: lag > BEHIND },
      { label: "dead letters", value: count(status.rejected), warn: status.rejected > 0, ...(status.rejected > 0 ? { href: letters(status.topic) } : {}) },
      ...(status.missed > 0 ? [{ label: "missed", value: count(status.missed), warn: true }] : []),
    ],
    said: said(trouble(status.error, status.error_ms), status.state === "failed"),
  };
}

export function deliveryFlow({ status, lag, rate: records }: Delivery, now = Date.now()): Flow {
  const files = status.format !== "topic";
  return {
    name: status.name,
    state: status.state,
    path: [
      status.source ? topicPart(status.source) : { text: "put records" },
      ...(status.transform ? [{ text: status.transform }] : []),
      files ? { text: `${status.to} (${status.format === "plain" ? "as they are" : status.format})` } : topicPart(status.to),
    ],
    figures: [
      // Files come all at once: a rate over seconds would say nothing.
      ...(files ? [] : [{ label: "", value: rate(records) }]),
      { label: "delivered", value: count(status.records) },
      ...(files ? [{ label: "files", value: count(status.files) }] : []),
      files
        ? { label: "waiting", value: status.buffered > 0 ? `${count(lag)}, ${bytes(status.buffered_bytes)}` : count(lag) }
        : { label: "behind", value: count(lag), warn: lag > BEHIND },
      { label: "dead letters", value: count(status.rejected), warn: status.rejected > 0, ...(status.rejected > 0 ? { href: letters(status.topic) } : {}) },
    ],
    said: [
      ...said(trouble(status.error, status.error_ms), status.state === "failed"),
      ...(files ? said(filesSay(status, now), false) : []),
    ],
  };
}

/** The last file, and when the next is due. */
function filesSay(status: Delivery["status"], now: number): string {
  const last = status.last_file ? `Last file${status.last_file_ms ? ` ${ago(status.last_file_ms, now)}` : ""}: ${status.last_file}` : "No file yet";
  if (status.buffered === 0 || status.buffered_since_ms === null) return last;
  const left = Math.max(0, status.buffered_since_ms + status.file_seconds * 1000 - now);
  return `${last}; the next at ${bytes(status.file_bytes)}, or in ${duration(left)}`;
}

/** What of all this is not well, the worst first; nothing while all is. */
export function flowsSay(functions: TopicFunction[], deliveries: Delivery[]): Said | null {
  const all = [...functions, ...deliveries].map((one) => one.status);
  const failed = all.filter((one) => one.state === "failed").map((one) => one.name);
  if (failed.length > 0) return { tone: "bad", text: `${list(failed)} ${failed.length === 1 ? "has" : "have"} failed.` };
  const waiting = all.filter((one) => one.state === "waiting").map((one) => one.name);
  if (waiting.length > 0) return { tone: "warn", text: `${list(waiting)} ${waiting.length === 1 ? "waits" : "wait"}.` };
  return null;
}

/** Fewer than these are what is just under way. */
const BEHIND = 10_000;
const topicPart = (name: string): { text: string; href: string } => ({ text: name, href: href("log", name) });
const letters = (topic: string): string => href("log", topic, { show: "dead" });
const trouble = (error: string | null, at: number | null): string => (error ? `${at ? `${ago(at)}: ` : ""}${error.split("\n")[0]}` : "");
const said = (text: string | null | undefined, bad: boolean): Flow["said"] => (text ? [{ text, bad }] : []);
