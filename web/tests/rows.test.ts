import { describe, expect, it } from "vitest";
import { compare, holdOrder, idAfter, LiveRows, matches, pastSays, placeOf } from "../src/lib/rows";
import type { Answer } from "../src/lib/types";
import { chartable, keepPlaces, labelOf, resultChartable, resultRows, topBars, windowSeries, windowWords } from "../src/lib/windows";

const answer = (rows: Answer["rows"]): Answer => ({
  columns: [
    { name: "pageid", type: "VARCHAR" },
    { name: "windowstart", type: "BIGINT" },
    { name: "windowend", type: "BIGINT" },
    { name: "views", type: "BIGINT" },
  ],
  rows,
  view: "views_per_minute",
  version: 1,
  through: { arrival: 9, offsets: {}, id: "1-8" },
  truncated: false,
  took_ms: 1,
});

it("follows from right behind the rows it read: they include what is below `through`", () => {
  expect(idAfter(answer([]))).toBe("1-8");
  expect(idAfter({ through: { arrival: 46, offsets: { 0: 46, 1: 0 }, id: "2@1a.0" } })).toBe("2@1a.0");
  expect(idAfter({ through: null })).toBeNull();
});

describe("LiveRows", () => {
  it("follows changes by key and window", () => {
    const rows = new LiveRows(answer([["/a", 0, 60_000, 5], ["/a", 60_000, 120_000, 1]]), ["pageid"]);
    rows.apply({ key: { pageid: "/a" }, value: { views: 2 }, time_ms: 1, window: { start: 60_000, end: 120_000 } });
    rows.apply({ key: { pageid: "/b" }, value: { views: 7 }, time_ms: 1, window: { start: 60_000, end: 120_000 } });
    rows.apply({ key: { pageid: "/a" }, value: null, time_ms: 1, window: { start: 0, end: 60_000 } });
    expect(rows.all().map((row) => row.cells)).toEqual([
      ["/a", 60_000, 120_000, 2],
      ["/b", 60_000, 120_000, 7],
    ]);
    expect(rows.all()[0]!.revision).toBe(1);
  });

  it("takes a key's own value where the value repeats the key, and null where nothing is", () => {
    const rows = new LiveRows(answer([]), ["pageid"]);
    rows.apply({ key: { pageid: "/a" }, value: {}, time_ms: 1, window: { start: 0, end: 1 } });
    expect(rows.all()[0]!.cells).toEqual(["/a", 0, 1, null]);
  });

  it("forgets the oldest window when it is full", () => {
    const rows = new LiveRows(answer([["/a", 120_000, 0, 1], ["/a", 0, 0, 1], ["/a", 60_000, 0, 1]]), ["pageid"], 3);
    rows.apply({ key: { pageid: "/a" }, value: { views: 1 }, time_ms: 1, window: { start: 180_000, end: 0 } });
    expect(rows.all().map((row) => row.cells[1])).toEqual([120_000, 60_000, 180_000]);
  });

  it("keeps a view without a key as one row", () => {
    const rows = new LiveRows({ ...answer([[7]]), columns: [{ name: "users", type: "BIGINT" }] }, []);
    rows.apply({ key: {}, value: { users: 8 }, time_ms: 1 });
    expect(rows.all().map((row) => row.cells)).toEqual([[8]]);
  });
});

it("holds rows where they are: values change, new ones wait, gone ones leave", () => {
  const row = (id: string, n: number): { id: string; n: number } => ({ id, n });
  const held = holdOrder(["b", "a", "gone"], [row("new", 1), row("a", 5), row("b", 2)]);
  expect(held).toEqual({ rows: [row("b", 2), row("a", 5)], waiting: 1 });
});

it("orders numbers by size, text by alphabet, nothing last", () => {
  expect([10, null, 9n, 2].sort(compare)).toEqual([2, 9n, 10, null]);
  expect(["b", "a10", "a9"].sort(compare)).toEqual(["a9", "a10", "b"]);
});

it("filters by all words, in any column and case", () => {
  expect(matches(["/Pricing", "u7"], "PRI u7")).toBe(true);
  expect(matches(["/pricing"], "pri missing")).toBe(false);
});

describe("charts of a view", () => {
  const rows = new LiveRows(answer([["/a", 0, 1, 5], ["/a", 60_000, 1, 6], ["/b", 60_000, 1, 90], ["/c", 0, 1, 1]]), ["pageid"]).all();
  const { columns } = answer([]);
  const of = chartable(columns, ["pageid"]);

  it("know keys, values and the window", () => {
    expect(of).toEqual({ values: ["views"], keys: ["pageid"], windowStart: "windowstart" });
    expect(labelOf(rows[0]!, columns, of.keys)).toBe("/a");
  });

  it("draw one line per key over all windows, the largest first", () => {
    expect(windowSeries(rows, columns, of, "views", { most: 2 })).toEqual({
      xs: [0, 60_000],
      series: [
        { label: "/b", values: [null, 90] },
        { label: "/a", values: [5, 6] },
      ],
    });
    expect(windowSeries(rows, columns, of, "views", { key: "/c" }).series).toEqual([{ label: "/c", values: [1, null] }]);
    expect(windowSeries(rows, columns, of, "views", { windows: 1 }).xs).toEqual([60_000]);
  });

  it("keep each line's place, and colour, while others come and go", () => {
    expect(keepPlaces(["a", "b", "c"], ["c", "d", "a"])).toEqual(["a", "d", "c"]);
    expect(keepPlaces([], ["b", "a"])).toEqual(["b", "a"]);
    expect(keepPlaces(["a", "b", "c"], ["b"])).toEqual(["b"]);
    expect(keepPlaces(["a"], ["x", "a", "y"])).toEqual(["a", "x", "y"]);
  });

  it("rank what has no windows", () => {
    const plain = [{ name: "pageid", type: "VARCHAR" }, { name: "views", type: "BIGINT" }];
    const two = new LiveRows({ ...answer([["/a", 1], ["/b", 2]]), columns: plain }, ["pageid"]).all();
    expect(topBars(two, plain, chartable(plain, ["pageid"]), "views", 1)).toEqual([{ label: "/b", value: 2 }]);
  });

  it("take the newest of each key out of a stream of changes", () => {
    const plain = [{ name: "pageid", type: "VARCHAR" }, { name: "views", type: "BIGINT" }];
    const changes = [["/a", 3], ["/b", 1], ["/a", 2]].map((cells, id) => ({ id: String(id), cells }));
    expect(resultRows(changes, plain, resultChartable(plain)).map((row) => row.cells)).toEqual([["/a", 3], ["/b", 1]]);
  });

  it("say a window in words", () => {
    expect(windowWords({ kind: "HOPPING", size_ms: 300_000, advance_ms: 60_000, grace_ms: 1 })).toBe("hopping 5 min every 1 min");
    expect(windowWords({ kind: "TUMBLING", size_ms: 60_000, advance_ms: 60_000 })).toBe("tumbling 1 min");
  });
});

describe("what a row includes", () => {
  it("is a number, or offsets where there is none", () => {
    expect(placeOf(12_409, {})).toBe(`arrival ${(12_409).toLocaleString()}`);
    expect(placeOf(null, { sales: { "0": 5, "1": 7 }, shops: { "0": 1 } })).toBe("sales 0:5 1:7, shops 0:1");
  });
});

describe("rows as of a moment", () => {
  it("say if they are of an earlier one, and how to get exact ones", () => {
    const asOf = (exact: boolean, represents_ms: number | null = 1000) => [{ name: "latest", as_of: { asked_ms: 2000, represents_ms, exact, hint: "ask by key" } }];
    expect(pastSays()).toBe("");
    expect(pastSays([{ name: "latest" }])).toBe("");
    expect(pastSays(asOf(true))).toBe("");
    expect(pastSays(asOf(false))).toMatch(/^; latest is shown as it was at .*, its newest state that is not later: ask by key$/);
    expect(pastSays(asOf(false, null))).toContain("before its first row");
  });
});
