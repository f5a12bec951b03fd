import { describe, expect, it } from "vitest";
import { careSeries, checkedSays, increases, lateOverTime, repaired } from "../src/lib/trust";
import type { LateRow, Revision } from "../src/lib/types";

const late = (stream_time_ms: number): LateRow => ({
  topic: "t", partition: 0, offset: 0, time_ms: 0, stream_time_ms, window_start_ms: 0, window_end_ms: 0, late_by_ms: 1, row: {},
});

describe("late records", () => {
  it("are counted by when they came, with empty stretches between", () => {
    expect(lateOverTime([late(10_000), late(12_000), late(45_000)])).toEqual({ xs: [10_000, 20_000, 30_000, 40_000], ys: [2, 0, 0, 1] });
    expect(lateOverTime([])).toEqual({ xs: [], ys: [] });
  });

  it("take longer stretches the longer the time is", () => {
    const { xs, ys } = lateOverTime([late(1000), late(3_600_000 * 30)]);
    expect(xs.length).toBeLessThanOrEqual(61);
    expect(ys.reduce((a, b) => a! + b!, 0)).toBe(2);
  });
});

it("late records that were repaired are counted once a row, by its newest revision", () => {
  const revision = (key: string, start_ms: number, late: number): Revision => ({ key: { key }, window: { start_ms, end_ms: 9 }, old: null, new: null, late, time_ms: 0 });
  expect(repaired([revision("a", 0, 3), revision("a", 0, 1), revision("a", 5, 2), revision("b", 0, 1)])).toBe(6);
});

describe("checks", () => {
  it("say it in words", () => {
    expect(checkedSays(0, 0, 0)).toBe("No row has been computed again yet.");
    expect(checkedSays(0, 0, 2)).toBe("No row could be computed again.");
    expect(checkedSays(1200, 0, 3)).toBe("1,200 rows were computed again from the log: all the same ✓");
    expect(checkedSays(1200, 1, 3)).toBe("1 row is not what the log says.");
  });

  it("are drawn as what came between two looks; a server that began anew begins anew", () => {
    expect(increases([5, 7, 7, 2])).toEqual([0, 2, 0, 2]);
    expect(careSeries({ times_ms: [1, 2], checked: [0, 50], drifted: [0, 1], late: [3, 3] })).toEqual({ xs: [1, 2], checked: [0, 50], drifted: [0, 1], late: [0, 0] });
  });
});
