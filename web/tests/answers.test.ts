import { describe, expect, it } from "vitest";
import { collectSays, deliverSays, isBehind, logSays, makes, nodeSays, overviewSays, queriesSays, querySays, viewSays, viewsSays } from "../src/lib/answers";
import type { Check, Overview, Query, Topic, TopologyNode, View } from "../src/lib/types";

const query = (more: Partial<Query> = {}): Query => ({
  id: "CTAS_V_1", statement: "", sink: "v", sources: ["s"], version: 1, version_state: "serving", wanted: "running", state: "running", batch: 1, rows_per_second: 100,
  rows: 1, counts: "records", changed_rows: 1, lag: 0, stream_time_ms: null, late_rows: 0, batch_ms: 200, state_rows: 0, state_bytes: 0, restarts: 0,
  last_error: null, started_ms: 0, updated_ms: Date.now(), ...more,
});
const view = (more: Partial<View> = {}): View => ({
  name: "v", version: 1, kind: "table", columns: [], window: null, topic: "v", query_id: "CTAS_V_1", rows: 1,
  through: { arrival: 1234, offsets: {}, id: "1-1233" }, lag: 0, rate: 2, ...more,
});
const topic = (more: Partial<Topic> = {}): Topic => ({
  name: "t", kind: "typed", role: "events", partitions: [], records: 1, counts: "records", bytes: 1, segments: 1, stream_time_ms: null, columns: [],
  timestamp: null, retention_ms: null, retention_bytes: null, config: {}, key_format: "KAFKA", value_format: "JSON", schema_versions: 1, internal: false, sources: [], rate: 10, dead_letters: 0, ...more,
});
const node = (more: Partial<TopologyNode> = {}): TopologyNode => ({ id: "query:q", kind: "query", name: "q", rate: 1, state: "ok", message: null, ...more });
const overview = (nodes: TopologyNode[], more: Partial<Overview> = {}): Overview => ({
  project: "p", version: "1", uptime_s: 1, nodes, edges: [], totals: { events: 1, rate: 5, dead_letters: 0, open_dead_letters: 0, late_rows: 0, bytes: 1, alerts: 0 },
  engine: { state: "running", pid: 1 }, ...more,
});

describe("the overview", () => {
  it("names the worst first", () => {
    expect(overviewSays(overview([node({ state: "lagging" }), node({ name: "x", state: "failed" })]))).toEqual({ tone: "bad", text: "x has failed." });
    expect(overviewSays(overview([node({ state: "lagging" })])).text).toBe("q lags behind.");
    expect(overviewSays(overview([node()], { engine: { state: "gone", pid: null } })).text).toContain("The engine is not running");
    expect(overviewSays(overview([node()]))).toEqual({ tone: "ok", text: "All is flowing, 5/s." });
  });

  it("lets a node say what is wrong before what it holds", () => {
    expect(nodeSays(node({ message: "no memory", detail: { lag: 3 } }))).toBe("no memory");
    expect(nodeSays(node({ detail: { lag: 3 } }))).toBe("3 records to go");
    expect(nodeSays(node({ kind: "topic", detail: { records: 1 } }))).toBe("1 record");
    expect(nodeSays(node({ kind: "topic", detail: { records: 3, counts: "offsets" } }))).toBe("3 offsets");
    expect(logSays([topic({ records: 3, counts: "offsets" })]).text).toBe("Yes: 3 offsets in 1 topic, kept by Kafka.");
    expect(nodeSays(node({ kind: "view", detail: { lag: 0 } }))).toBe("up to date");
    expect(nodeSays(node({ kind: "collector", detail: { rejected: 2 } }))).toBe("2 rejected");
    expect(nodeSays(node({ state: "idle" }))).toBe("quiet");
  });
});

describe("queries", () => {
  it("are behind when working off the lag takes long, not while a batch is under way", () => {
    expect(isBehind(query({ lag: 300 }))).toBe(false);
    expect(isBehind(query({ lag: 3000 }))).toBe(true);
    expect(isBehind(query({ lag: 5, rows_per_second: 0 }))).toBe(false);
    expect(isBehind(query({ lag: 5, rows_per_second: 0, updated_ms: Date.now() - 60_000 }))).toBe(true);
    // It takes half a minute for a batch: what has arrived since is that old.
    expect(querySays(query({ lag: 2850, rows_per_second: 0, batch_ms: 32_100 }))).toEqual({ tone: "warn", text: "It is 2,850 records behind." });
    expect(querySays(query({ rows_per_second: 0 })).text).toBe("It keeps up: nothing to read, the last batch took 200 ms.");
  });

  it("say which version they make, unless it serves", () => {
    expect(makes(query())).toBe("v");
    expect(makes(query({ version: 2, version_state: "building" }))).toBe("v (version 2, building)");
  });

  it("say how they are", () => {
    expect(queriesSays([query(), query({ state: "stopped", wanted: "stopped" })]).text).toBe("Yes: 1 query runs without lag, 1 stopped.");
    expect(queriesSays([query({ lag: 9000 })])).toEqual({ tone: "warn", text: "Not quite: v is 9,000 records behind." });
    expect(queriesSays([query({ state: "failed" })]).tone).toBe("bad");
    expect(querySays(query({ state: "stalled", last_error: { message: "no row was read", time_ms: 1 } })).text).toBe("It stands still: no row was read");
    expect(querySays(query({ state: "restarting", restarts: 2, last_error: { message: "boom", time_ms: 1 } })).text).toContain("2 times so far): boom");
    expect(querySays(query({ lag: 9000 })).text).toBe("It is 9,000 records behind, about 1 min 30 s of work.");
  });
});

it("views say what is not in them", () => {
  expect(viewSays(view({ rows: 0, through: { arrival: 0, offsets: {}, id: "1-0" } }), query(), null, 0)).toEqual({
    tone: "idle",
    text: "It is empty: no change has been written to it yet.",
  });
  expect(viewSays(view(), query(), null, 3).text).toBe("Yes: every change up to arrival 1,233 is in it. 3 rows came too late; below is which, and which were repaired.");
  expect(viewSays(view(), query({ state: "failed" }), null, 0).tone).toBe("bad");
  const check: Check = { view: "v", version: 1, rounds: 1, rows: 9, drifted: 2, skipped: 0, passes: 0, last_ms: 1, drift: [] };
  expect(viewSays(view(), query(), check, 0)).toEqual({ tone: "bad", text: "No: 2 rows are not what the log says." });
  expect(viewSays(view(), query(), { ...check, drifted: 0 }, 0).tone).toBe("ok");
  expect(viewsSays([view()], [query()], [check])).toEqual({ tone: "bad", text: "No: v has rows that are not what the log says." });
  expect(viewsSays([view({ lag: 5000 })], [query()])).toEqual({ tone: "warn", text: "v has not applied all changes yet." });
  expect(viewsSays([view()], [query()]).text).toContain("No row came too late.");
});

it("collecting counts what was rejected", () => {
  expect(collectSays([topic(), topic({ name: "d", role: "derived", rate: 99 })])).toEqual({ tone: "ok", text: "Yes: 10/s into t. None was rejected." });
  expect(collectSays([topic({ dead_letters: 1 })]).text).toContain("1 event was set aside");
  expect(collectSays([]).tone).toBe("idle");
});

it("delivery says who listens", () => {
  expect(deliverSays([view()], 2)).toEqual({ tone: "ok", text: "2 subscribers beside this page, 2 changes a second." });
  expect(deliverSays([view({ rate: 0 })], 0).text).toBe("Nobody but this page. 1 view is ready, no changes at the moment.");
});
