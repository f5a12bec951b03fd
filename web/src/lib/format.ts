/** Numbers, times and values as people read them. */

import type { Value } from "./types";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 6 });

/** 48211 → "48,211" */
export function count(value: number | bigint | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return whole.format(value);
}

/** Short enough for a label: 12408113 → "12.4 M" */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${digits(value / 1e9)} G`;
  if (size >= 1e6) return `${digits(value / 1e6)} M`;
  if (size >= 1e4) return `${digits(value / 1e3)} k`;
  if (size >= 100 || Number.isInteger(value)) return whole.format(Math.round(value));
  return digits(value);
}

function digits(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : 1).replace(/\.0$/, "");
}

/** Events a second: 0 stays 0, a trickle is not rounded away. */
export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–/s";
  if (value > 0 && value < 0.1) return "<0.1/s";
  return `${short(value)}/s`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : digits(value)} ${units[unit]}`;
}

/** A length of time, in at most its two largest units: 3723000 → "1 h 2 min" */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${digits(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return pair(minutes, "min", minutes < 10 ? Math.floor((ms % 60_000) / 1000) : 0, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return pair(hours, "h", minutes % 60, "min");
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

function pair(large: number, unit: string, small: number, smaller: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smaller}`;
}

/** The time of day, in the reader's zone, with milliseconds. */
export function clock(ms: number): string {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${three(date.getMilliseconds())}`;
}

/** The moment in the reader's zone; the date only if it is not today. */
export function moment(ms: number | null | undefined, now = Date.now()): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  const date = new Date(ms);
  const seconds = date.getMilliseconds() === 0 ? clock(ms).slice(0, 8) : clock(ms);
  return sameDay(date, new Date(now)) ? seconds : `${day(date)} ${seconds}`;
}

export function day(date: Date): string {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

function sameDay(one: Date, other: Date): boolean {
  return day(one) === day(other);
}

export function ago(ms: number | null | undefined, now = Date.now()): string {
  if (ms === null || ms === undefined) return "never";
  const passed = now - ms;
  if (passed < -1500) return `in ${duration(-passed)}`;
  if (passed < 1500) return "just now";
  return `${duration(Math.floor(passed / 1000) * 1000)} ago`;
}

const two = (value: number): string => String(value).padStart(2, "0");
const three = (value: number): string => String(value).padStart(3, "0");

/** "1 row", "2 rows" */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** "a", "a and b", "a, b and 2 more" */
export function list(names: string[], most = 3): string {
  if (names.length > most) return `${names.slice(0, most - 1).join(", ")} and ${names.length - most + 1} more`;
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

const WINDOW_BOUND = /^(window_?start|window_?end|rowtime)$/i;

/** Whether a column holds moments, whatever its type says: window bounds are BIGINT milliseconds. */
export function isMoment(name: string, type: string): boolean {
  return type === "TIMESTAMP" || (WINDOW_BOUND.test(name) && type !== "VARCHAR");
}

/** A value in a table's cell. `raw` is what is copied. */
export function cell(value: Value | undefined, name = "", type = ""): string {
  if (value === null || value === undefined) return "";
  if (isMoment(name, type)) return moment(toMs(value));
  if (typeof value === "number") return Number.isInteger(value) ? whole.format(value) : fine.format(value);
  if (typeof value === "bigint") return whole.format(value);
  return raw(value);
}

export function raw(value: Value | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") return json(value);
  return String(value);
}

/** JSON that also takes BigInt, written as the number it is. */
export function json(value: unknown, indent?: number): string {
  const marked = JSON.stringify(value, (_, inner: unknown) => (typeof inner === "bigint" ? `\u0000${inner}` : inner), indent);
  return (marked ?? "null").replace(/"\\u0000(-?\d+)"/g, "$1");
}

/** Milliseconds from what the API sends for a moment: milliseconds or ISO 8601. */
export function toMs(value: Value | undefined): number {
  if (typeof value === "number") return value;
  if (typeof value === "bigint") return Number(value);
  if (typeof value === "string") return /^-?\d+$/.test(value) ? Number(value) : Date.parse(value);
  return NaN;
}

export function isNumeric(type: string): boolean {
  return /^(INTEGER|BIGINT|DOUBLE|DECIMAL)/.test(type);
}
