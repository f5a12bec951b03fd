/** What each room says first: one question, answered in words. */

import { ago, bytes, count, duration, list, plural, rate, short } from "./format";
import { lastIncluded } from "./rows";
import type { Check, Overview, Query, Topic, TopologyNode, View } from "./types";

export type Tone = "ok" | "warn" | "bad" | "idle";

export interface Said {
  tone: Tone;
  text: string;
}

const said = (tone: Tone, text: string): Said => ({ tone, text });

/** A lag that is worked off within this long is not worth a word. */
const TOLERABLE_LAG_MS = 5000;

export function overviewSays(overview: Overview): Said {
  const failed = overview.nodes.filter((node) => node.state === "failed");
  if (failed.length > 0) return said("bad", `${list(failed.map((node) => node.name))} ${failed.length === 1 ? "has" : "have"} failed.`);
  if (overview.engine.state !== "running") {
    return said("warn", `The engine is ${engineWord(overview.engine.state)}: events are stored, tables wait for it.`);
  }
  const starting = overview.nodes.filter((node) => node.state === "starting");
  if (starting.length > 0) return said("warn", `${list(starting.map((node) => node.name))} ${starting.length === 1 ? "is" : "are"} starting.`);
  const lagging = overview.nodes.filter((node) => node.state === "lagging");
  if (lagging.length > 0) return said("warn", `${list(lagging.map((node) => node.name))} ${lagging.length === 1 ? "lags" : "lag"} behind.`);
  if (overview.totals.rate < 0.05) return said("idle", "All is well. Nothing is arriving at the moment.");
  return said("ok", `All is flowing, ${rate(overview.totals.rate)}.`);
}

export function engineWord(state: string): string {
  return state === "gone" ? "not running" : state;
}

export function collectSays(topics: Topic[]): Said {
  const taking = topics.filter((topic) => topic.role !== "derived");
  const arriving = taking.filter((topic) => topic.rate > 0);
  const dead = taking.reduce((sum, topic) => sum + topic.dead_letters, 0);
  const rejected = dead > 0 ? ` ${plural(dead, "event was set aside as a dead letter", "events were set aside as dead letters")}.` : " None was rejected.";
  if (taking.length === 0) return said("idle", "There is no topic yet that could take events.");
  if (arriving.length === 0) return said("idle", `Nothing in the last seconds.${dead > 0 ? rejected : ""}`);
  const sum = arriving.reduce((total, topic) => total + topic.rate, 0);
  return said(dead > 0 ? "warn" : "ok", `Yes: ${rate(sum)} into ${list(arriving.map((topic) => topic.name))}.${rejected}`);
}

export function logSays(topics: Topic[]): Said {
  if (topics.length === 0) return said("idle", "There is no topic yet.");
  const records = topics.reduce((sum, topic) => sum + topic.records, 0);
  const size = topics.reduce((sum, topic) => sum + topic.bytes, 0);
  if (topics.some((topic) => topic.counts === "offsets")) return said("ok", `Yes: ${plural(records, "offset")} in ${plural(topics.length, "topic")}, kept by Kafka.`);
  return said("ok", `Yes: ${plural(records, "record")} in ${plural(topics.length, "topic")}, ${bytes(size)} on disk, each synced before it was acknowledged.`);
}

export function queriesSays(queries: Query[]): Said {
  if (queries.length === 0) return said("idle", "There is no query yet.");
  const failed = queries.filter((query) => query.state === "failed");
  if (failed.length > 0) return said("bad", `No: ${list(failed.map((query) => query.sink))} ${failed.length === 1 ? "has" : "have"} failed.`);
  const restarting = queries.filter((query) => query.state === "restarting");
  if (restarting.length > 0) return said("bad", `${list(restarting.map((query) => query.sink))} failed and ${restarting.length === 1 ? "is" : "are"} being restarted.`);
  const stalled = queries.filter((query) => query.state === "stalled");
  if (stalled.length > 0) return said("bad", `No: ${list(stalled.map((query) => query.sink))} ${stalled.length === 1 ? "is" : "are"} stalled.`);
  const running = queries.filter((query) => query.state === "running");
  const behind = running.filter(isBehind);
  if (behind.length > 0) {
    const worst = behind.reduce((a, b) => (a.lag > b.lag ? a : b));
    return said("warn", `Not quite: ${worst.sink} is ${plural(worst.lag, "record")} behind.`);
  }
  const starting = queries.filter((query) => query.state === "starting");
  if (starting.length > 0) return said("warn", `${plural(starting.length, "query is", "queries are")} starting.`);
  if (running.length === 0) return said("idle", "All queries are stopped.");
  const stopped = queries.length - running.length;
  return said("ok", `Yes: ${plural(running.length, "query runs", "queries run")} without lag${stopped > 0 ? `, ${count(stopped)} stopped` : ""}.`);
}

/** What a query writes, with the version unless that is the one that serves. */
export function makes(query: Query): string {
  return query.version_state === "serving" ? query.sink : `${query.sink} (version ${query.version}, ${query.version_state})`;
}

/** Behind means that working off the lag takes a while, not that a batch is under way. */
export function isBehind(query: Query): boolean {
  if (query.lag <= 0) return false;
  // What arrives while a long batch is computed waits for the next one.
  if (query.batch_ms !== null && query.batch_ms > TOLERABLE_LAG_MS) return true;
  if (query.rows_per_second <= 0) return query.updated_ms !== null && Date.now() - query.updated_ms > TOLERABLE_LAG_MS;
  return (query.lag / query.rows_per_second) * 1000 > TOLERABLE_LAG_MS;
}

export function querySays(query: Query, now = Date.now()): Said {
  const why = query.last_error ? `: ${query.last_error.message}` : "";
  switch (query.state) {
    case "failed":
      return said("bad", `It has failed${why}`);
    case "stalled":
      return said("bad", `It stands still${why}`);
    case "restarting":
      return said("bad", `It failed and is being restarted (${plural(query.restarts, "time")} so far)${why}`);
    case "starting":
      return said("warn", "It is starting.");
    case "stopped":
      return said("idle", "It is stopped. Events wait in the log; starting it continues where it was.");
    case "running":
      if (isBehind(query)) return said("warn", `It is ${plural(query.lag, "record")} behind${catchUp(query)}.`);
      return said("ok", `It keeps up: ${query.rows_per_second > 0 ? rate(query.rows_per_second) : "nothing to read"}, the last batch took ${duration(query.batch_ms)}${
        query.updated_ms !== null && now - query.updated_ms > 10_000 ? `, ${ago(query.updated_ms, now)}` : ""
      }.`);
  }
}

function catchUp(query: Query): string {
  return query.rows_per_second > 0 ? `, about ${duration((query.lag / query.rows_per_second) * 1000)} of work` : "";
}

export function viewsSays(views: View[], queries: Query[], checks: Check[] = []): Said {
  if (views.length === 0) return said("idle", "There is no view yet.");
  const wrong = checks.filter((check) => check.drifted > 0);
  if (wrong.length > 0) return said("bad", `No: ${list(wrong.map((check) => check.view))} ${wrong.length === 1 ? "has" : "have"} rows that are not what the log says.`);
  const broken = views.filter((view) => queries.some((query) => query.id === view.query_id && query.state === "failed"));
  if (broken.length > 0) return said("bad", `${list(broken.map((view) => view.name))} ${broken.length === 1 ? "stands" : "stand"} still: the query behind has failed.`);
  const late = queries.reduce((sum, query) => sum + query.late_rows, 0);
  const behind = views.filter((view) => view.lag > 1000);
  if (behind.length > 0) return said("warn", `${list(behind.map((view) => view.name))} ${behind.length === 1 ? "has" : "have"} not applied all changes yet.`);
  const left = late > 0 ? ` ${plural(late, "row")} came too late: each view says which, and which were repaired.` : " No row came too late.";
  return said("ok", `Yes: ${plural(views.length, "view includes", "views include")} everything computed so far.${left}`);
}

/** `followers` are subscribers of feeds now, without this page's own; null if the server does not say. */
export function deliverSays(views: View[], followers: number | null): Said {
  if (views.length === 0) return said("idle", "There is nothing to deliver yet.");
  const changes = views.reduce((sum, view) => sum + view.rate, 0);
  const flow = changes > 0 ? `${short(changes)} changes a second` : "no changes at the moment";
  if (followers === null) return said("idle", `Whoever asks: ${plural(views.length, "view")}, ${flow}.`);
  if (followers === 0) return said("idle", `Nobody but this page. ${plural(views.length, "view is", "views are")} ready, ${flow}.`);
  return said("ok", `${plural(followers, "subscriber")} beside this page, ${flow}.`);
}

/** A node's second line: what is wrong if anything is, else what it holds. */
export function nodeSays(node: TopologyNode): string {
  if (node.message) return node.message;
  const detail = node.detail ?? {};
  const number = (name: string): number | null => (typeof detail[name] === "number" ? (detail[name] as number) : null);
  const rows = number("rows");
  const records = number("records");
  const lag = number("lag");
  const rejected = number("rejected");
  if (node.state !== "ok" && node.state !== "idle") return node.state;
  if (node.kind === "query" && lag !== null) return lag > 0 ? `${plural(lag, "record")} to go` : "keeps up";
  if (node.kind === "view" && rows !== null) return plural(rows, "row");
  if (node.kind === "view" && lag !== null) return lag > 0 ? `${plural(lag, "change")} to apply` : "up to date";
  if (node.kind === "topic" && records !== null) return plural(records, detail["counts"] === "offsets" ? "offset" : "record");
  if (node.kind === "collector" && rejected !== null) return rejected > 0 ? `${count(rejected)} rejected` : "none rejected";
  return node.state === "idle" ? "quiet" : "ok";
}

export function topicSays(topic: Topic): Said {
  if (topic.records === 0) return said("idle", "It is empty so far.");
  const flowing = topic.rate > 0 ? `, ${rate(topic.rate)} more` : ", nothing at the moment";
  return said(topic.rate > 0 ? "ok" : "idle", `Yes: ${plural(topic.records, topic.counts === "offsets" ? "offset" : "record")} in ${plural(topic.partitions.length, "partition")}${flowing}.`);
}

export function viewSays(view: View, query: Query | null, check: Check | null, late: number): Said {
  if (check && check.drifted > 0) return said("bad", `No: ${plural(check.drifted, "row is", "rows are")} not what the log says.`);
  if (query?.state === "failed") return said("bad", `It stands still: its query has failed. ${query.last_error?.message ?? ""}`);
  if (query?.wanted === "stopped") return said("idle", "It stands still: its query is stopped. The rows are right as of then.");
  if (view.lag > 1000) return said("warn", `It has ${plural(view.lag, "change")} still to apply.`);
  const left = late > 0 ? ` ${plural(late, "row")} came too late; below is which, and which were repaired.` : "";
  const last = view.through ? lastIncluded(view.through) : null;
  if (last !== null && last < 0) return said("idle", "It is empty: no change has been written to it yet.");
  return said("ok", `Yes: every change ${last === null ? "" : `up to arrival ${count(last)} `}is in it.${left}`);
}
