import { describe, expect, it } from "vitest";
import { after, asked, before, hasNewer, hasOlder, missing, NEWEST, offsets } from "../src/lib/browse";
import { diff, pretty } from "../src/lib/diff";
import { check, draftOf, fieldOf } from "../src/lib/produce";
import type { RecordsPage, Topic } from "../src/lib/types";

const page: RecordsPage = { records: [], from: "0:10,1:5", next: "0:20,1:9", starts: "0:0,1:5", ends: "0:20,1:9", cut: false };

describe("a place in a topic", () => {
  it("is asked for in the API's words", () => {
    expect(asked(NEWEST)).toEqual({ limit: "50", before: "latest" });
    expect(asked({ ...NEWEST, jump: "offset", value: "7" })).toEqual({ limit: "50", offset: "7", partition: "0" });
    expect(asked({ ...NEWEST, jump: "earliest", partition: 1, where: " n > 1 " })).toEqual({ limit: "50", from: "earliest", partition: "1", where: "n > 1" });
    expect(asked({ ...NEWEST, jump: "time", value: "1970-01-01T00:00:01Z" })).toEqual({ limit: "50", time: "1000" });
  });

  it("says what is missing", () => {
    expect(missing(NEWEST)).toBeNull();
    expect(missing({ ...NEWEST, jump: "time" })).toMatch(/date/);
    expect(missing({ ...NEWEST, jump: "offset", value: "1.5" })).toMatch(/whole number/);
  });

  it("leads to the page before and the one after", () => {
    expect(offsets("0:48211,1:7")).toEqual(new Map([[0, 48211], [1, 7]]));
    expect(after(page, NEWEST)).toEqual({ limit: "50", at: "0:20,1:9" });
    expect(before(page, { ...NEWEST, where: "a" })).toEqual({ limit: "50", where: "a", before: "0:10,1:5" });
    expect([hasOlder(page), hasNewer(page)]).toEqual([true, false]);
    expect([hasOlder({ ...page, from: "1:5" }), hasNewer({ ...page, next: "0:19" })]).toEqual([false, true]);
  });
});

describe("a difference", () => {
  it("keeps what is common", () => {
    const lines = diff("a\nb\nc", "a\nx\nc\nd");
    expect(lines.map((line) => `${line.kind[0]}${line.text}`)).toEqual(["sa", "rb", "ax", "sc", "ad"]);
    expect(diff("same", "same")).toEqual([{ kind: "same", text: "same" }]);
  });

  it("compares JSON by its lines and leaves the rest", () => {
    expect(pretty('{"a":1}')).toBe('{\n  "a": 1\n}');
    expect(pretty("syntax = proto3")).toBe("syntax = proto3");
  });
});

const topic = {
  kind: "typed",
  partitions: [{ partition: 0, start: 0, end: 0 }, { partition: 1, start: 0, end: 0 }],
  columns: [{ name: "id", type: "VARCHAR", key: true }, { name: "total", type: "DOUBLE", key: false }],
} as unknown as Topic;

describe("a record being written", () => {
  it("begins with the topic's columns", () => {
    expect(draftOf(topic, '{"id":"a","total":1.5}')).toEqual({ key: '"a"', value: '{\n  "total": 1.5\n}', headers: [], partition: "" });
  });

  it("is checked field by field", () => {
    const draft = { key: '"a"', value: '{"total": 1}', headers: [{ name: "trace", value: "1" }, { name: "", value: "" }], partition: "1" };
    expect(check(draft, topic)).toEqual({ record: { key: "a", value: { total: 1 }, headers: { trace: "1" }, partition: 1 }, wrong: {} });
    expect(check({ ...draft, value: "" }, topic).record).not.toHaveProperty("value");
    expect(Object.keys(check({ key: "{", value: "7", headers: [{ name: "", value: "x" }], partition: "2" }, topic).wrong)).toEqual(["key", "value", "headers", "partition"]);
    expect(check({ ...draft, key: "plain", value: "text" }, { ...topic, kind: "raw" }).record).toMatchObject({ key: "plain", value: "text" });
  });

  it("knows where a refusal belongs", () => {
    expect(fieldOf("`total` must be a number, got \"x\"", topic)).toBe("value");
    expect(fieldOf("`id` must be a string, got 7", topic)).toBe("key");
    expect(fieldOf("`$headers` must be an object of strings", topic)).toBe("headers");
  });
});
