/** Jobs in words. */

import { ago, list, moment, plural } from "./format";
import type { Said } from "./answers";
import type { Job, JobRun } from "./types";

export function isUnderWay(run: JobRun | null): boolean {
  return run !== null && (run.state === "queued" || run.state === "running");
}

export function jobsSays(jobs: Job[], problem: string | null): Said {
  if (problem) return { tone: "bad", text: `The files are wrong, and the jobs as they were before: ${problem.split("\n")[0]}` };
  if (jobs.length === 0) return { tone: "idle", text: "There is no job yet." };
  const failed = jobs.filter((job) => job.last?.state === "failed");
  if (failed.length > 0) return { tone: "bad", text: `No: ${list(failed.map((job) => job.name))} failed.` };
  const waiting = jobs.filter((job) => job.last?.state === "waiting");
  if (waiting.length > 0) return { tone: "warn", text: `${list(waiting.map((job) => job.name))} ${waiting.length === 1 ? "waits" : "wait"} for another to succeed.` };
  const running = jobs.filter((job) => isUnderWay(job.last));
  if (running.length > 0) return { tone: "ok", text: `${list(running.map((job) => job.name))} ${running.length === 1 ? "is" : "are"} running.` };
  const never = jobs.filter((job) => job.last === null);
  if (never.length === jobs.length) return { tone: "idle", text: "None has run yet." };
  return { tone: "ok", text: `Yes: ${plural(jobs.length - never.length, "job has", "jobs have")} run, none failed.` };
}

/** What it is about: a name; a question is too long for that. */
export function aboutSays(job: Job): string {
  return /\s/.test(job.about) ? "of a query" : job.about;
}

/** When a job runs by itself. */
export function whenSays(job: Job): string {
  const after = job.after.length > 0 ? `after ${list(job.after, 4)}` : "";
  if (job.every) return [`every ${job.every}`, after].filter(Boolean).join(", ");
  if (job.schedule) return [`${job.schedule}${job.zone === "UTC" ? " UTC" : ` ${job.zone}`}`, after].filter(Boolean).join(", ");
  return after || "when asked";
}

export function nextSays(job: Job, now: number): string {
  if (isUnderWay(job.last)) return "now";
  if (job.next_ms === null) return job.after.length > 0 && !job.every && !job.schedule ? `once ${list(job.after, 2)} succeeded` : "–";
  return job.next_ms <= now ? "now" : `${moment(Math.round(job.next_ms / 1000) * 1000, now)}, ${ago(job.next_ms, now)}`;
}

const REASONS: Record<JobRun["why"], string> = {
  schedule: "by its schedule",
  after: "after what it waits for",
  asked: "asked for",
  again: "again, after the server stopped",
};

export function runSays(run: JobRun): string {
  return `${REASONS[run.why]}${run.attempts > 1 ? `, ${plural(run.attempts, "try", "tries")}` : ""}`;
}
