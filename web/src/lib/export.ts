/** Rows and charts as files. */

import { address, open } from "./api";
import { json, raw } from "./format";
import { session } from "./session.svelte";
import type { Column, Value } from "./types";

/** RFC 4180. A value that a spreadsheet would take for a formula is kept as text by a leading quote. */
export function toCsv(columns: Column[], rows: Value[][]): string {
  const lines = [columns.map(({ name }) => field(name)), ...rows.map((row) => row.map((value) => field(raw(value), typeof value === "string")))];
  return `${lines.map((line) => line.join(",")).join("\r\n")}\r\n`;
}

function field(text: string, guard = false): string {
  const safe = guard && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function toJson(columns: Column[], rows: Value[][]): string {
  return `${json(rows.map((row) => Object.fromEntries(columns.map(({ name }, at) => [name, row[at] ?? null]))), 2)}\n`;
}

/** Row by row, a line for each column: for rows wider than the screen. */
export function vertical(columns: Column[], rows: Value[][]): string {
  const width = Math.max(0, ...columns.map(({ name }) => name.length));
  const blocks = rows.map((row, at) => [`── ${at + 1} ${"─".repeat(30)}`, ...columns.map(({ name }, n) => `${name.padEnd(width)}  ${raw(row[n] ?? null)}`)]);
  return blocks.map((lines) => lines.join("\n")).join("\n");
}

export function save(name: string, type: string, content: BlobPart): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A file that the server makes: handed to the browser as it comes, or, where a key has to be sent, when it is whole. */
export async function download(path: string, name: string): Promise<void> {
  if (session.key) {
    save(name, "application/octet-stream", await (await open(path)).blob());
    return;
  }
  const link = document.createElement("a");
  link.href = address(path);
  link.download = name;
  link.click();
}

/** A file's name: what it is and when, without what a file system may not like. */
export function fileName(what: string, extension: string, now = new Date()): string {
  const stamp = now.toISOString().slice(0, 19).replaceAll(":", "").replace("T", "-");
  return `${what.replace(/[^\w.-]+/g, "_")}-${stamp}.${extension}`;
}
