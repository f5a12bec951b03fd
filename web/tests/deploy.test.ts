import { describe, expect, it } from "vitest";
import { buildSays, changeSays, comparisonSays, deploymentOf, stageSays, timeLine } from "../src/lib/deploy";
import type { Comparison, Deployment, Version } from "../src/lib/types";

const deployment: Deployment = {
  id: 3,
  stage: "waiting",
  detail: "1 of 4 rows of `by_page` differ (25.00%): somebody has to approve",
  who: "ann",
  started_ms: 1,
  changed_ms: 2,
  paused: false,
  items: [
    { name: "by_page", verdict: "rebuilds", version: 2, before: 1 },
    { name: "clicks", verdict: "keeps its state", version: 1, before: 1 },
  ],
  builds: [],
  comparisons: [],
};
const comparison: Comparison = {
  view: "by_page", old: 1, new: 2, cut: 9, same: 3, changed: 1, only_old: 0, only_new: 2, columns_added: [], columns_removed: [], deltas: [], samples: [],
};

describe("deployments", () => {
  it("finds the one that changed a view, not one that left it", () => {
    expect(deploymentOf("by_page", [deployment])).toBe(deployment);
    expect(deploymentOf("clicks", [deployment])).toBeNull();
  });

  it("says how it is", () => {
    expect(stageSays(deployment)).toBe("Deployment 3 is waiting: 1 of 4 rows of `by_page` differ (25.00%): somebody has to approve");
    expect(stageSays({ ...deployment, detail: "", paused: true })).toBe("Deployment 3 is paused");
    const build = { name: "by_page", query_id: "q", state: "running", read: 50, left: 50, rows_per_second: 10, seconds_left: 5 };
    expect(buildSays(build)).toBe("by_page: 50 %, 10 rows/s, about 5 s left");
    expect(buildSays({ ...build, left: 0 })).toBe("by_page: has read everything");
  });

  it("says what differs", () => {
    expect(comparisonSays(comparison)).toBe("3 the same, 1 changed, 0 only in v1, 2 only in v2");
    expect(comparisonSays({ ...comparison, changed: 0, only_new: 0 })).toBe("v1 and v2 have the same 3 rows");
  });

  it("says what a plan would do", () => {
    const change = { name: "a", verdict: "rebuilds", reason: "what it reads is rebuilt", hint: "", dependents: [], replays: 2, seconds: null, warnings: [] };
    expect(changeSays(change)).toBe("rebuilds (replays 2 events): what it reads is rebuilt");
  });

  it("puts versions on a line of time; one that nobody dated stands at its start", () => {
    const version = (number: number, since_ms: number): Version => ({
      version: number, state: "serving", topic: "", query_id: null, deployment: 0, since_ms, kept_until_ms: null, rows: null, lag: null, statement: "",
    });
    expect(timeLine([version(1, 0), version(2, 100), version(3, 150)], 200).map((one) => one.at)).toEqual([0, 0, 50]);
  });
});
