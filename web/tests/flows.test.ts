import { describe, expect, it } from "vitest";
import { deliveryFlow, flowsSay, functionFlow } from "../src/lib/flows";
import type { Delivery, TopicFunction } from "../src/lib/types-collect";

const NOW = 1_000_000;
const on = (more: Partial<TopicFunction["status"]> = {}, lag = 0): TopicFunction => ({
  status: {
    name: "enrich", file: "functions/enrich.py", topic: "orders", to: "rich", state: "running", summary: "", records: 12, written: 11, rejected: 0,
    missed: 0, error: null, error_ms: null, ...more,
  },
  lag,
  rate: 3,
});
const delivery = (more: Partial<Delivery["status"]> = {}, lag = 0): Delivery => ({
  status: {
    name: "lake", source: "", topic: "_firehose.lake", to: "lake/orders/", format: "parquet", transform: "", state: "running", records: 7,
    rejected: 0, files: 2, buffered: 0, buffered_bytes: 0, buffered_since_ms: null, file_bytes: 5 * 1024 * 1024, file_seconds: 300,
    last_file: "lake/orders/a.parquet", last_file_ms: NOW - 60_000, error: null, error_ms: null, ...more,
  },
  lag,
  rate: 0,
});
const figure = (flow: { figures: { label: string; value: string }[] }, label: string): string | undefined =>
  flow.figures.find((one) => one.label === label)?.value;

describe("functions on topics", () => {
  it("say what they read and write, and lead to their dead letters", () => {
    const well = functionFlow(on());
    expect(well.path.map((part) => part.text)).toEqual(["orders", "rich"]);
    expect(figure(well, "read")).toBe("12");
    expect(well.said).toEqual([]);
    const ill = functionFlow(on({ state: "failed", rejected: 2, error: "ValueError: no\nmore" }, 20_000));
    expect(ill.figures.filter((one) => one.warn).map((one) => one.label)).toEqual(["behind", "dead letters"]);
    expect(ill.figures.find((one) => one.label === "dead letters")?.href).toBe("#/log/orders?show=dead");
    expect(ill.said).toEqual([{ text: "ValueError: no", bad: true }]);
  });
});

describe("delivery streams", () => {
  it("say what waits for its file, and when that is due", () => {
    expect(deliveryFlow(delivery(), NOW).said).toEqual([{ text: "Last file 1 min ago: lake/orders/a.parquet", bad: false }]);
    const waiting = deliveryFlow(delivery({ buffered: 3, buffered_bytes: 2048, buffered_since_ms: NOW - 30_000, last_file: null }, 4), NOW);
    expect(figure(waiting, "waiting")).toBe("4, 2 KiB");
    expect(waiting.said[0]?.text).toBe("No file yet; the next at 5 MiB, or in 4 min 30 s");
  });

  it("into a topic have no files", () => {
    const flow = deliveryFlow(delivery({ format: "topic", source: "in", to: "out", transform: "clean" }, 5), NOW);
    expect(flow.path.map((part) => part.text)).toEqual(["in", "clean", "out"]);
    expect([figure(flow, "files"), figure(flow, "behind"), flow.said.length]).toEqual([undefined, "5", 0]);
  });
});

describe("both", () => {
  it("say the worst first, and nothing while all is well", () => {
    expect(flowsSay([on()], [delivery()])).toBeNull();
    expect(flowsSay([on({ state: "waiting" })], [delivery({ state: "failed" })])?.text).toBe("lake has failed.");
    expect(flowsSay([on({ state: "waiting" })], [])).toEqual({ tone: "warn", text: "enrich waits." });
  });
});
