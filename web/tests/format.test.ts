import { describe, expect, it } from "vitest";
import { ago, bytes, cell, count, duration, json, list, moment, plural, raw, rate, short, toMs } from "../src/lib/format";
import { parseJson } from "../src/lib/api";

describe("numbers", () => {
  it("are short where a label needs it and exact where a table does", () => {
    expect([0, 7, 999, 1234, 12_345, 1_240_000, 3.14159e9].map(short)).toEqual(["0", "7", "999", "1,234", "12.3 k", "1.2 M", "3.1 G"]);
    expect(short(null)).toBe("–");
    expect(count(48_211)).toBe("48,211");
    expect(count(9007199254740993n)).toBe("9,007,199,254,740,993");
  });

  it("do not round a trickle away", () => {
    expect([0, 0.04, 0.4, 312.4].map(rate)).toEqual(["0/s", "<0.1/s", "0.4/s", "312/s"]);
  });

  it("name sizes and lengths of time", () => {
    expect([0, 1023, 1024, 8_123_411].map(bytes)).toEqual(["0 B", "1023 B", "1 KiB", "7.7 MiB"]);
    expect([0, 850, 1500, 61_000, 3_723_000, 90_000_000 * 3].map(duration)).toEqual(["0 ms", "850 ms", "1.5 s", "1 min 1 s", "1 h 2 min", "3 d 3 h"]);
    expect(duration(null)).toBe("–");
  });
});

describe("moments", () => {
  const noon = new Date(2026, 10, 15, 12, 0, 0).getTime();

  it("leave the date out on the same day", () => {
    expect(moment(noon - 1, noon)).toBe("11:59:59.999");
    expect(moment(noon - 86_400_000, noon)).toBe("2026-11-14 12:00:00");
    expect(moment(null)).toBe("–");
  });

  it("are told from now", () => {
    expect(ago(noon - 500, noon)).toBe("just now");
    expect(ago(noon - 61_000, noon)).toBe("1 min 1 s ago");
    expect(ago(null, noon)).toBe("never");
  });

  it("come as milliseconds or as ISO", () => {
    expect(toMs("1970-01-01T00:00:01Z")).toBe(1000);
    expect(toMs("1500")).toBe(1500);
    expect(toMs(null)).toBeNaN();
  });
});

describe("values", () => {
  it("of a window's bounds are shown as times, and copied as they are", () => {
    const start = new Date(2026, 10, 15, 12, 0, 0).getTime();
    expect(cell(start, "windowstart", "BIGINT")).toContain("12:00:00");
    expect(raw(start)).toBe(String(start));
    expect(cell(start, "views", "BIGINT")).toBe(count(start));
  });

  it("stay exact beyond 2^53, through reading and writing", () => {
    const text = '{"n":9007199254740993,"f":0.1234567890123456,"s":"12345678901234567890"}';
    const value = parseJson(text);
    if (typeof (value as { n: unknown }).n === "bigint") expect(json(value)).toBe(text);
    expect((value as { s: string }).s).toBe("12345678901234567890");
    expect(json({ big: 9007199254740993n, list: [1n] })).toBe('{"big":9007199254740993,"list":[1]}');
  });
});

it("counts in words", () => {
  expect([plural(1, "row"), plural(2, "row"), plural(1200, "query is", "queries are")]).toEqual(["1 row", "2 rows", "1,200 queries are"]);
  expect([list([]), list(["a"]), list(["a", "b"]), list(["a", "b", "c", "d"])]).toEqual(["", "a", "a and b", "a, b and 2 more"]);
});
