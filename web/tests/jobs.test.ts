import { describe, expect, it } from "vitest";
import { jobsSays, nextSays, runSays, whenSays } from "../src/lib/jobs";
import type { Job, JobRun } from "../src/lib/types";

const run = (more: Partial<JobRun> = {}): JobRun => ({
  number: 1, state: "done", why: "schedule", started_ms: 0, finished_ms: 5, attempts: 1, message: "", log: "", ...more,
});
const job = (more: Partial<Job> = {}): Job => ({
  name: "report", run: "export", about: "v", every: null, schedule: null, zone: "UTC", missed: "run", after: [], retries: 0, next_ms: null, last: run(), ...more,
});

describe("jobs", () => {
  it("say the worst first", () => {
    expect(jobsSays([], null).text).toBe("There is no job yet.");
    expect(jobsSays([job()], null)).toEqual({ tone: "ok", text: "Yes: 1 job has run, none failed." });
    expect(jobsSays([job(), job({ name: "late", last: run({ state: "failed" }) })], null)).toEqual({ tone: "bad", text: "No: late failed." });
    expect(jobsSays([job({ last: run({ state: "waiting" }) })], null).tone).toBe("warn");
    expect(jobsSays([job({ last: run({ state: "queued" }) })], null).text).toBe("report is running.");
    expect(jobsSays([job({ last: null })], null).text).toBe("None has run yet.");
    expect(jobsSays([job()], "all.toml: bad\n  hint").text).toBe("The files are wrong, and the jobs as they were before: all.toml: bad");
  });

  it("say when they run", () => {
    expect(whenSays(job({ every: "1h", after: ["a"] }))).toBe("every 1h, after a");
    expect(whenSays(job({ schedule: "0 6 * * *", zone: "Europe/Berlin" }))).toBe("0 6 * * * Europe/Berlin");
    expect(whenSays(job({ after: ["a", "b"] }))).toBe("after a and b");
    expect(whenSays(job())).toBe("when asked");
    expect(nextSays(job({ next_ms: 3_600_000 }), 0)).toMatch(/, in 1 h$/);
    expect(nextSays(job({ next_ms: 5 }), 10)).toBe("now");
    expect(nextSays(job({ after: ["a"] }), 0)).toBe("once a succeeded");
    expect(nextSays(job(), 0)).toBe("–");
  });

  it("say why they ran", () => {
    expect(runSays(run({ why: "asked", attempts: 3 }))).toBe("asked for, 3 tries");
    expect(runSays(run({ why: "again" }))).toBe("again, after the server stopped");
  });
});
