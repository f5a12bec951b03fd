/** A view's rows, kept current by its feed. */

import { count, json, moment } from "./format";
import type { Answer, Change, Column, Fields, Read, Through, Value } from "./types";

/** Of rows AS OF a moment that are of an earlier one: which, why, and how to get exact rows. */
export function pastSays(reads: Read[] = []): string {
  return reads
    .filter((read) => read.as_of && !read.as_of.exact)
    .map(({ name, as_of }) => `; ${name} is shown as it was ${as_of!.represents_ms === null ? "before its first row" : `at ${moment(as_of!.represents_ms)}`}, its newest state that is not later${as_of!.hint ? `: ${as_of!.hint}` : ""}`)
    .join("");
}

/** The last arrival number that an answer includes: `through` names the first that it does not. */
export function lastIncluded(through: Through): number {
  return through.arrival - 1;
}

/** What a row includes, in words: an arrival number, or where the log gives none, offsets by topic and partition. */
export function placeOf(arrival: number | null, inputs: Record<string, Record<string, number>>): string {
  if (arrival !== null) return `arrival ${count(arrival)}`;
  const places = Object.entries(inputs).map(([topic, offsets]) => {
    const each = Object.entries(offsets).map(([partition, offset]) => `${partition}:${count(offset)}`);
    return [topic, ...each].join(" ");
  });
  return places.join(", ");
}

/** The feed's id right after which an answer ends, so that following from there neither misses nor repeats a change. */
export function idAfter(answer: Pick<Answer, "through">): string | null {
  return answer.through?.id ?? null;
}

export interface LiveRow {
  id: string;
  cells: Value[];
  /** Counts up with every change, so that what draws it can tell. */
  revision: number;
}

const START = /^window_?start$/i;
const END = /^window_?end$/i;

export class LiveRows {
  columns: Column[];
  #keys: number[];
  #rows = new Map<string, LiveRow>();

  /** `keys` are the view's key columns; a window's bounds belong to the key whether they are marked or not. */
  constructor(answer: Answer, keys: string[], readonly capacity = 5000) {
    this.columns = answer.columns;
    const named = new Set(keys);
    this.#keys = answer.columns.flatMap(({ name }, at) => (named.has(name) || START.test(name) || END.test(name) ? [at] : []));
    for (const cells of answer.rows) this.#put(cells);
  }

  get size(): number {
    return this.#rows.size;
  }

  all(): LiveRow[] {
    return [...this.#rows.values()];
  }

  apply(change: Change): void {
    const cells = this.columns.map(({ name }) => cellOf(change, name));
    if (change.value === null) this.#rows.delete(this.#id(cells));
    else this.#put(cells);
  }

  #put(cells: Value[]): void {
    const id = this.#id(cells);
    const revision = (this.#rows.get(id)?.revision ?? -1) + 1;
    this.#rows.set(id, { id, cells, revision });
    if (this.#rows.size > this.capacity) this.#forget();
  }

  /** Of a windowed view the oldest window goes, of another the row that was put first. */
  #forget(): void {
    const at = this.columns.findIndex(({ name }) => START.test(name));
    let oldest: LiveRow | null = null;
    for (const row of this.#rows.values()) {
      if (oldest === null || (at >= 0 && row.cells[at]! < oldest.cells[at]!)) oldest = row;
      if (at < 0) break;
    }
    if (oldest) this.#rows.delete(oldest.id);
  }

  #id(cells: Value[]): string {
    return json(this.#keys.map((at) => cells[at] ?? null));
  }
}

function cellOf(change: Change, name: string): Value {
  if (change.window && START.test(name)) return change.window.start;
  if (change.window && END.test(name)) return change.window.end;
  return own(change.value, name) ?? own(change.key, name) ?? null;
}

function own(fields: Fields | null, name: string): Value | undefined {
  return fields && Object.hasOwn(fields, name) ? fields[name] : undefined;
}

/** Orders values of one column: numbers by size, text by the reader's alphabet, nothing last. */
export function compare(a: Value | undefined, b: Value | undefined): number {
  const none = Number(a === null || a === undefined) - Number(b === null || b === undefined);
  if (none !== 0 || a === null || a === undefined || b === null || b === undefined) return none;
  if (isNumber(a) && isNumber(b)) return a < b ? -1 : a > b ? 1 : 0;
  return String(typeof a === "object" ? json(a) : a).localeCompare(String(typeof b === "object" ? json(b) : b), undefined, { numeric: true });
}

function isNumber(value: Value): value is number | bigint {
  return typeof value === "number" || typeof value === "bigint";
}

/** Rows that contain all the words, anywhere, in any case. */
export function matches(cells: readonly string[], words: string): boolean {
  const text = cells.join("\n").toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/**
 * The order in which rows stay put: those already shown keep their places, those that went away leave, new ones wait.
 * This is what holds a table still under the pointer.
 */
export function holdOrder<T extends { id: string }>(shown: readonly string[], rows: readonly T[]): { rows: T[]; waiting: number } {
  const byId = new Map(rows.map((row) => [row.id, row]));
  const held = shown.flatMap((id) => byId.get(id) ?? []);
  return { rows: held, waiting: rows.length - held.length };
}
