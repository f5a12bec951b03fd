/** Commands and events to begin with, made from what is there. */

import type { Column, Topic, View } from "./types";

/** A short event that fits the topic: its key and the first columns. Its time is when it arrives. */
export function example(topic: Pick<Topic, "columns" | "timestamp">): string {
  const timeless = topic.columns.filter(({ name }) => name !== topic.timestamp);
  const few = [...timeless.filter(({ key }) => key), ...timeless.filter(({ key }) => !key).slice(0, 2)];
  return JSON.stringify(Object.fromEntries(few.map(({ name, type }) => [name, valueFor(name, type)])));
}

function valueFor(name: string, type: string): unknown {
  if (type === "BOOLEAN") return true;
  if (/^(INTEGER|BIGINT)/.test(type)) return 1;
  if (/^(DOUBLE|DECIMAL)/.test(type)) return 1.5;
  if (type === "TIMESTAMP") return "2026-11-15T12:00:00Z";
  if (type === "DATE") return "2026-11-15";
  if (type === "TIME") return "12:00:00";
  if (type.startsWith("ARRAY")) return [];
  if (type.startsWith("MAP") || type.startsWith("STRUCT")) return {};
  if (/user/.test(name)) return "you";
  if (/page|path|url/.test(name)) return "/hello";
  return "hello";
}

/** Single quotes end a shell's string, so they are stepped around. */
export const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

export function origin(): string {
  return globalThis.location ? new URL(".", document.baseURI).href.replace(/\/$/, "") : "http://127.0.0.1:8080";
}

export function sendCommand(topic: string, body: string, base = origin()): string {
  return `curl -d ${quote(body)} ${base}/v1/topics/${encodeURIComponent(topic)}/events`;
}

export function followCommand(view: string, base = origin()): string {
  return `curl -N '${base}/v1/views/${encodeURIComponent(view)}/feed?snapshot=true'`;
}

export function rowsCommand(view: View, base = origin()): string {
  const value = valueColumn(view.columns);
  return `curl '${base}/v1/views/${encodeURIComponent(view.name)}/rows?limit=10${value ? `&order=-${encodeURIComponent(value)}` : ""}'`;
}

export function queryCommand(view: View, base = origin()): string {
  return `curl -H 'Content-Type: application/json' -d ${quote(JSON.stringify({ sql: `SELECT * FROM ${view.name} LIMIT 10;` }))} ${base}/v1/query`;
}

export function followScript(view: string, base = origin()): string {
  return `const feed = new EventSource("${base}/v1/views/${encodeURIComponent(view)}/feed?snapshot=true");
feed.addEventListener("change", (event) => {
  const { key, value, window } = JSON.parse(event.data);
  console.log(event.lastEventId, key, window, value ?? "deleted");
});
// The browser reconnects with Last-Event-ID by itself: no gap, no repeat.`;
}

export function socketScript(view: string, base = origin()): string {
  return `const socket = new WebSocket("${base.replace(/^http/, "ws")}/v1/views/${encodeURIComponent(view)}/feed");
socket.onmessage = ({ data }) => {
  const { id, event, data: change } = JSON.parse(data);
  console.log(id, event, change);
};`;
}

export function pythonScript(view: string, base = origin()): string {
  return `import httpx, json

with httpx.stream("GET", "${base}/v1/views/${encodeURIComponent(view)}/feed", timeout=None) as feed:
    for line in feed.iter_lines():
        if line.startswith("data:"):
            print(json.loads(line[5:]))`;
}

/** The first number that is not part of the key. */
export function valueColumn(columns: Column[]): string | null {
  return columns.find((column) => !column.key && !/^window_?(start|end)$/i.test(column.name) && /^(INTEGER|BIGINT|DOUBLE|DECIMAL)/.test(column.type))?.name ?? null;
}
