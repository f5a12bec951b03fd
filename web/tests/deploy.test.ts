import { describe, expect, it } from "vitest";
import { buildSays, changeSays, comparisonSays, deploymentOf, diffRows, pendingChange, signed, stageSays } from "../src/lib/deploy";
import type { Comparison, Deployment, PlannedChange, Version } from "../src/lib/types-deploy";
import { lanes, layersSay, versionSays } from "../src/lib/versions";

const item = { name: "by_page", verdict: "rebuilds", version: 2, before: 1, statement: "new", old_statement: "old" };
const deployment: Deployment = {
  id: 3,
  stage: "waiting",
  detail: "1 of 4 rows of `by_page` differ (25.00%): somebody has to approve",
  who: "ann",
  strategy: "kappa",
  max_changed: null,
  rows_per_second: 0,
  started_ms: 1000,
  changed_ms: 2000,
  paused: false,
  items: [item, { ...item, name: "clicks", verdict: "keeps its state", version: 1 }],
  builds: [],
  comparisons: [],
};
const comparison: Comparison = {
  view: "by_page", old: 1, new: 2, cut: 9, same: 3, changed: 1, only_old: 0, only_new: 2, columns_added: [], columns_removed: [], deltas: [], samples: [],
};
const change: PlannedChange = {
  name: "by_page", verdict: "rebuilds", reason: "what it reads is rebuilt", hint: "", dependents: [], alerts: [], replays: 2, seconds: null, warnings: [], version: 2, serving: 1, statement: "new", old_statement: "old",
};

describe("deployments", () => {
  it("finds the one that changed a view, not one that left it", () => {
    expect(deploymentOf("by_page", [deployment])).toBe(deployment);
    expect(deploymentOf("clicks", [deployment])).toBeNull();
  });

  it("says how it is", () => {
    expect(stageSays(deployment)).toBe("Deployment 3 is waiting: 1 of 4 rows of `by_page` differ (25.00%): somebody has to approve");
    expect(stageSays({ ...deployment, detail: "", paused: true })).toBe("Deployment 3 is paused");
    const build = { name: "by_page", query_id: "q", state: "running", read: 50, left: 50, rows_per_second: 10, seconds_left: 5, done: 0.5 };
    expect(buildSays(build)).toBe("by_page: 50 %, 10 rows/s, about 5 s left");
    expect(buildSays({ ...build, left: 0, done: 1 })).toBe("by_page: has read everything");
    // All that its input has written so far, but that is not done either.
    expect(buildSays({ ...build, left: 0, rows_per_second: 0, seconds_left: null })).toBe("by_page: 50 %");
  });

  it("says what a plan would do, unless that is being made already", () => {
    expect(changeSays(change)).toBe("rebuilds (replays 2 events): what it reads is rebuilt");
    expect(pendingChange("by_page", [change], null)).toBe(change);
    expect(pendingChange("by_page", [change], deployment)).toBeNull();
    expect(pendingChange("by_page", [{ ...change, statement: "newer" }], deployment)?.statement).toBe("newer");
    expect(pendingChange("by_page", [change], { ...deployment, stage: "cancelled" })).toBe(change);
    expect(pendingChange("by_page", [{ ...change, verdict: "nothing" }], null)).toBeNull();
  });
});

describe("the difference", () => {
  it("is said", () => {
    expect(comparisonSays(comparison)).toBe("3 the same, 1 changed, 0 only in v1, 2 only in v2");
    expect(comparisonSays({ ...comparison, changed: 0, only_new: 0 })).toBe("v1 and v2 have the same 3 rows");
  });

  it("is shown value by value, with deltas of numbers", () => {
    const samples: Comparison["samples"] = [
      { key: { p: "/a" }, old: { n: 5, who: "x" }, new: { n: 3, who: "x" }, window: { start: 7, end: 8 } },
      { key: { p: "/b" }, old: { n: 1, who: "y" }, new: null, window: null },
      { key: { p: "/c" }, old: null, new: { n: null, more: 1 }, window: null },
    ];
    const { columns, rows } = diffRows(samples);
    expect(columns).toEqual(["n", "who", "more"]);
    expect(rows.map((row) => [row.kind, row.window])).toEqual([["changed", 7], ["only_old", null], ["only_new", null]]);
    expect(rows[0]!.cells.slice(0, 2)).toEqual([{ old: 5, new: 3, delta: -2, differs: true }, { old: "x", new: "x", delta: null, differs: false }]);
    expect(rows[1]!.cells[0]).toEqual({ old: 1, new: undefined, delta: null, differs: true });
    expect([signed(3), signed(-2.5), signed(0)]).toEqual(["+3", "−2.5", "±0"]);
  });
});

describe("versions", () => {
  const version = (number: number, state: Version["state"], more: Partial<Version> = {}): Version => ({
    version: number, state, topic: "", query_id: `q${number}`, deployment: 0, since_ms: 0, served: [], kept_until_ms: null, rows: 4, lag: null, statement: "", strategy: "kappa", layers: null, ...more,
  });

  it("lie on a common line of time, newest first; what nobody dated begins where the line does", () => {
    const now = 1_000_000;
    const old = version(1, "retired", { since_ms: 800_000, served: [[0, 800_000]], kept_until_ms: now + 3_600_000 });
    const serving = version(2, "serving", { since_ms: 800_000, served: [[800_000, 0]], deployment: 3 });
    const drawn = lanes([old, serving], [{ ...deployment, started_ms: 700_000, stage: "switched" }], now);
    expect(drawn.lanes.map((lane) => lane.version.version)).toEqual([2, 1]);
    expect(drawn.start).toBeCloseTo(now - 300_000 * 1.15);
    const [built, served] = drawn.lanes[0]!.segments;
    expect([built!.kind, served!.kind, served!.to]).toEqual(["building", "serving", 100]);
    expect(built!.to).toBeCloseTo(served!.from);
    expect(drawn.lanes[1]!.segments[0]).toMatchObject({ kind: "serving", from: 0, to: served!.from });
  });

  it("that served twice show both times, and what was between", () => {
    const back = version(1, "serving", { since_ms: 900_000, served: [[0, 800_000], [900_000, 0]] });
    expect(lanes([back], [], 1_000_000).lanes[0]!.segments.map((one) => one.kind)).toEqual(["serving", "kept", "serving"]);
  });

  it("say what they are doing", () => {
    const build = { name: "by_page", query_id: "q2", state: "running", read: 50, left: 50, rows_per_second: 10, seconds_left: 5, done: 0.5 };
    expect(versionSays(version(2, "building"), { ...deployment, builds: [build] }, 0)).toBe("50 %, 10 rows/s, about 5 s left");
    expect(versionSays(version(2, "caught up"), deployment, 0)).toBe("waits for somebody to approve, 4 rows");
    expect(versionSays(version(1, "serving"), null, 0)).toBe("serves from the beginning, 4 rows");
    expect(versionSays(version(1, "retired", { since_ms: 1, kept_until_ms: 7_200_001 }), null, 1)).toContain("for a roll back for 2 h more, 4 rows");
    expect(versionSays(version(2, "failed"), { ...deployment, detail: "q2: boom" }, 0)).toBe("q2: boom");
  });

  it("of two layers say how old the batch is, and when it is made again", () => {
    const layers = { cut: 9, batch_query: "b", speed_query: "s", batch_rows: 4, made_ms: 1000, refresh_ms: 3_600_000 };
    expect(layersSay(layers, 61_000)).toBe("The batch layer was made 1 min ago with 4 rows. It is refreshed every 1 h, next in 59 min.");
    expect(layersSay({ ...layers, refresh_ms: null }, 61_000)).toContain("when asked to");
    expect(layersSay({ ...layers, made_ms: null, batch_rows: null }, 0)).toBe("The batch layer is being computed.");
  });
});
