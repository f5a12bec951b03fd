/** What is typed into the form for a record → the record, or what is wrong with it, by field. */

import type { Topic, Value } from "./types";

export interface Draft {
  key: string;
  value: string;
  headers: { name: string; value: string }[];
  partition: string;
}

export type Wrong = Partial<Record<"key" | "value" | "headers" | "partition", string>>;

export interface Checked {
  record: Record<string, Value> | null;
  wrong: Wrong;
}

/** The forms of a topic's key and value, to begin with. */
export function draftOf(topic: Topic, example: string): Draft {
  const fields = JSON.parse(example) as Record<string, Value>;
  const keys = topic.columns.filter((column) => column.key).map((column) => column.name);
  if (topic.kind === "raw") return { key: "", value: "hello", headers: [], partition: "" };
  const key = keys.length === 1 ? JSON.stringify(fields[keys[0]!] ?? null) : keys.length > 1 ? JSON.stringify(pick(fields, keys)) : "";
  const rest = Object.fromEntries(Object.entries(fields).filter(([name]) => !keys.includes(name)));
  return { key, value: JSON.stringify(rest, null, 2), headers: [], partition: "" };
}

function pick(fields: Record<string, Value>, names: string[]): Record<string, Value> {
  return Object.fromEntries(names.map((name) => [name, fields[name] ?? null]));
}

/** An empty value is a tombstone. A raw topic takes text as it is. */
export function check(draft: Draft, topic: Topic): Checked {
  const wrong: Wrong = {};
  const raw = topic.kind === "raw";
  const record: Record<string, Value> = {};
  if (draft.key.trim()) record["key"] = raw ? draft.key : parsed(draft.key, "key", wrong);
  if (draft.value.trim()) record["value"] = raw ? draft.value : parsed(draft.value, "value", wrong);
  if (!raw && !wrong.value && draft.value.trim() && !isObject(record["value"]) && record["value"] !== null)
    wrong.value = "A value is a JSON object, or empty for a tombstone.";
  const headers = draft.headers.filter((header) => header.name || header.value);
  if (headers.some((header) => !header.name)) wrong.headers = "A header needs a name.";
  if (headers.length > 0) record["headers"] = Object.fromEntries(headers.map((header) => [header.name, header.value]));
  if (draft.partition !== "") {
    const partition = Number(draft.partition);
    if (!Number.isInteger(partition) || partition < 0 || partition >= topic.partitions.length)
      wrong.partition = `Partitions are 0 to ${topic.partitions.length - 1}.`;
    record["partition"] = partition;
  }
  return { record: Object.keys(wrong).length > 0 ? null : record, wrong };
}

function isObject(value: Value | undefined): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parsed(text: string, field: "key" | "value", wrong: Wrong): Value {
  try {
    return JSON.parse(text) as Value;
  } catch (error) {
    wrong[field] = `Not JSON: ${(error as Error).message.replace(/^JSON\.parse: /, "")}`;
    return null;
  }
}

/** Which field a server's reason is about: it names the column first. */
export function fieldOf(reason: string, topic: Topic): "key" | "value" | "headers" {
  const column = /^`\$?([^`[.]+)/.exec(reason)?.[1]?.toLowerCase();
  if (column === "headers") return "headers";
  return topic.columns.some((one) => one.key && one.name.toLowerCase() === column) ? "key" : "value";
}
