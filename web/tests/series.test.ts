import { describe, expect, it } from "vitest";
import { downsample, Ring, ticks, timeTicks } from "../src/lib/series";

describe("Ring", () => {
  it("keeps the newest points in their order", () => {
    const ring = new Ring(3);
    expect(ring.points()).toEqual({ xs: [], ys: [] });
    for (let i = 1; i <= 5; i += 1) ring.push(i, i * 10);
    expect(ring.points()).toEqual({ xs: [3, 4, 5], ys: [30, 40, 50] });
    expect([ring.size, ring.last]).toEqual([3, 50]);
  });
});

describe("downsample", () => {
  const xs = Array.from({ length: 10_000 }, (_, i) => i);

  it("keeps a spike of a single point, both ends, and the order", () => {
    const ys = xs.map((x) => (x === 4321 ? 999 : x === 7777 ? -999 : Math.sin(x)));
    const thin = downsample({ xs, ys }, 400);
    expect(thin.xs.length).toBeLessThanOrEqual(600);
    expect(thin.ys).toContain(999);
    expect(thin.ys).toContain(-999);
    expect([thin.xs[0], thin.xs.at(-1)]).toEqual([0, 9999]);
    expect(thin.xs).toEqual([...thin.xs].sort((a, b) => a - b));
    expect(new Set(thin.xs).size).toBe(thin.xs.length);
  });

  it("keeps a hole a hole", () => {
    const ys = xs.map((x) => (x >= 5000 && x < 5010 ? null : 1));
    expect(downsample({ xs, ys }, 400).ys).toContain(null);
  });

  it("leaves what is short enough alone", () => {
    const points = { xs: [1, 2], ys: [3, 4] };
    expect(downsample(points, 400)).toEqual(points);
  });
});

describe("ticks", () => {
  it("are round and inside", () => {
    expect(ticks(0, 97, 5)).toEqual([0, 20, 40, 60, 80]);
    expect(ticks(0, 0.7, 5)).toEqual([0, 0.2, 0.4, 0.6]);
    expect(ticks(5, 5, 5)).toEqual([5]);
  });

  it("of time fall on round times of the reader's clock", () => {
    const from = new Date(2026, 10, 15, 12, 3, 20).getTime();
    const found = timeTicks(from, from + 3_600_000, 6);
    expect(found.map((t) => new Date(t).getMinutes() % 10)).toEqual([0, 0, 0, 0, 0, 0]);
  });
});
