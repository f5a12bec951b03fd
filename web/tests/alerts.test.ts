import { describe, expect, it } from "vitest";
import { alertsSays, subjectSays, toldSays, worstFirst } from "../src/lib/alerts";
import type { Alert, AlertDestination } from "../src/lib/types-alerts";

const place = (more: Partial<AlertDestination> = {}): AlertDestination => ({ to: "topic t", waiting: 0, told_ms: null, attempts: 0, error: null, ...more });
const alert = (more: Partial<Alert> = {}): Alert => ({
  name: "drift", file: "alerts/drift.toml", watch: "drift", about: "all views", rule: "r", description: "", state: "ok", since_ms: null, subjects: [], destinations: [], problem: null, ...more,
});
const says = (...alerts: Alert[]) => alertsSays({ alerts, problems: [] });

describe("alerts", () => {
  it("say the worst first", () => {
    expect(says().text).toBe("Nobody watches: there is no alert.");
    expect(says(alert())).toEqual({ tone: "ok", text: "No: 1 alert watches, none fires." });
    expect(says(alert(), alert({ name: "late", state: "pending" })).tone).toBe("warn");
    expect(says(alert({ state: "firing" }), alert({ name: "late", state: "firing" })).text).toBe("Yes: drift and late fire.");
    expect(says(alert({ destinations: [place({ waiting: 1, error: "answered 503" })] })).tone).toBe("warn");
    expect(alertsSays({ alerts: [alert()], problems: [{ file: "alerts/a.toml", line: 2, message: "no", hint: null }] }).tone).toBe("bad");
    expect(says(alert({ state: "disabled" })).tone).toBe("idle");
  });

  it("come with those that fire first", () => {
    const names = worstFirst([alert({ name: "b" }), alert({ name: "a" }), alert({ name: "z", state: "firing" })]).map((one) => one.name);
    expect(names).toEqual(["z", "a", "b"]);
  });

  it("say whether somebody was told", () => {
    expect(toldSays(place())).toBe("not told yet");
    expect(toldSays(place({ waiting: 2, error: "answered 503" }))).toBe("2 notices wait: answered 503");
    expect(toldSays(place({ told_ms: 0, attempts: 1 }), 3000)).toMatch(/^told 3 s ago/);
    expect(toldSays(place({ told_ms: 0, error: "answered 503" }))).toBe("was never told: answered 503");
    expect(subjectSays({ subject: "v", state: "ok", since_ms: null, value: 2, detail: "", fired: 1 })).toBe("2 now, fired 1 time");
  });
});
