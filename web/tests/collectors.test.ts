import { describe, expect, it } from "vitest";
import { collectorSays, collectorsSay, componentRows, settingRows, sparkline, trialSays } from "../src/lib/collectors";
import { nodeHref } from "../src/lib/router.svelte";
import type { Collector, TrialResult } from "../src/lib/types-collect";

const collector = (more: Partial<Collector> = {}): Collector => ({
  name: "web", type: "http", where: "http", topic: "clicks", file: "collectors/web.toml", state: "running", detail: "", problem: null, rate: 0,
  received: 0, accepted: 0, duplicates: 0, rejected: 0, shed: 0, refused: 0, bytes: 0, errors: 0, last_error: null, last_error_ms: null,
  last_event_ms: null, connections: 0, components: {}, ...more,
});
const trial = (more: Partial<TrialResult> = {}): TrialResult => ({
  outcome: "accepted", event: {}, topic: "clicks", partition: 0, offset: 7, rejected: [], ...more,
});

describe("collectors", () => {
  it("say the worst first, and nothing while all is well", () => {
    expect(collectorsSay([collector()])).toBeNull();
    expect(collectorsSay([collector(), collector({ problem: "collectors/web.toml:2: no" })])?.text).toBe("collectors/web.toml is wrong.");
    expect(collectorsSay([collector({ state: "waiting" }), collector({ name: "a", state: "failed" })])?.text).toBe("a has failed.");
  });

  it("say what they are doing", () => {
    expect(collectorSays(collector({ rate: 5 }))).toEqual({ tone: "ok", text: "Yes: 5/s into clicks." });
    expect(collectorSays(collector({ rate: 5, rejected: 2, shed: 1 }))).toEqual({ tone: "warn", text: "Yes: 5/s into clicks. 2 rejected and 1 shed." });
    expect(collectorSays(collector({ rate: 5, topic: "" })).text).toBe("Yes: 5/s.");
    expect(collectorSays(collector()).text).toBe("It is ready; nothing has come yet.");
    expect(collectorSays(collector({ state: "waiting", detail: "the broker is away" })).text).toBe("Not yet: the broker is away.");
    expect(collectorSays(collector({ problem: "x" })).text).toBe("Its file is wrong: it goes on as it was before.");
    expect(collectorSays(collector({ problem: "x", type: "" })).text).toBe("No: its file is wrong.");
  });

  it("say what became of a test event", () => {
    expect(trialSays(trial()).text).toBe("Taken, at 0:7.");
    expect(trialSays(trial({ outcome: "rejected", rejected: [{ index: 0, reason: "`n` must be a number", dead_letter: 3 }] }))).toEqual({
      tone: "bad", text: "Rejected: `n` must be a number",
    });
    expect(trialSays(trial({ outcome: "shed" })).tone).toBe("warn");
  });

  it("show what an agent's parts have counted", () => {
    expect(componentRows({ "source r1": { EventReceivedCount: 1200, EventReadFail: 0 }, "sink k1": { EventDrainSuccessCount: 0 } })).toEqual([
      { name: "source r1", counted: "EventReceivedCount 1,200" },
      { name: "sink k1", counted: "nothing yet" },
    ]);
  });

  it("show settings a line each, without defaults", () => {
    expect(settingRows({ type: "http", keys: ["a", "b"], privacy: { drop: ["x"], key: "", truncate: { ip: "network" } } })).toEqual([
      { name: "type", value: "http" },
      { name: "keys", value: "a, b" },
      { name: "privacy.drop", value: "x" },
      { name: "privacy.truncate.ip", value: "network" },
    ]);
  });

  it("are drawn as a line that stays in its box", () => {
    expect(sparkline([], 100, 20)).toBe("0,20 100,20");
    expect(sparkline([0, 5, 10], 100, 20)).toBe("0,20 50,10 100,0");
  });

  it("have a page that the overview leads to", () => {
    expect(nodeHref({ id: "gate:web", kind: "collector", name: "web" })).toBe("#/collect/web");
    expect(nodeHref({ id: "collector:http", kind: "collector", name: "HTTP" })).toBe("#/collect");
  });
});
