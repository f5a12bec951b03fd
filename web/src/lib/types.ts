/** What the HTTP API answers, as docs/reference/http-api.md says it. */

export type Scalar = string | number | bigint | boolean | null;
export type Value = Scalar | Value[] | { [name: string]: Value };
export type Fields = Record<string, Value>;

export interface Column {
  name: string;
  type: string;
  key?: boolean;
}

export interface Partition {
  partition: number;
  start: number;
  end: number;
}

export interface Topic {
  name: string;
  kind: string;
  role: string;
  partitions: Partition[];
  records: number;
  /** What `records` and `rate` are numbers of. */
  counts: "records" | "offsets";
  bytes: number;
  segments: number;
  stream_time_ms: number | null;
  columns: Column[];
  timestamp: string | null;
  retention_ms: number | null;
  retention_bytes: number | null;
  config: Record<string, number | boolean | string>;
  key_format: string;
  value_format: string;
  schema_versions: number;
  internal: boolean;
  sources: string[];
  rate: number;
  dead_letters: number;
}

export interface Window {
  start: number | string;
  end: number | string;
}

export interface TopicEvent {
  partition: number;
  offset: number;
  arrival: number | null;
  time_ms: number;
  id: string | null;
  key: Fields | null;
  value: Fields | null;
  rest: Fields | null;
  headers: Fields | null;
  window?: Window;
}

export interface DeadLetter {
  offset: number;
  time_ms: number;
  topic: string;
  reason: string;
  source: string;
  id: string | null;
  bytes: string;
  text?: string | null;
  attempts: number;
  redriven?: boolean;
}

/** What a redrive did, or would do. */
export interface Redriven {
  matched: number;
  accepted: number;
  duplicates: number;
  rejected: number;
  samples: { letter: DeadLetter; event: string | null; outcome: "accepted" | "duplicate" | "rejected"; reason: string | null }[];
}

export interface SendResult {
  accepted: number;
  duplicates: number;
  rejected: { index: number; reason: string; dead_letter?: number }[];
  position?: { partition: number; offset: number } | null;
}

export type QueryState = "starting" | "running" | "stalled" | "restarting" | "stopped" | "failed";

export interface Query {
  id: string;
  statement: string;
  sink: string;
  sources: string[];
  version: number;
  /** Of the version that it writes: "serving", or being built, or kept. */
  version_state: string;
  wanted: "running" | "stopped";
  state: QueryState;
  batch: number | null;
  rows_per_second: number;
  rows: number;
  /** What `rows`, `changed_rows`, `late_rows` and `lag` are numbers of. */
  counts: "records" | "offsets";
  changed_rows: number;
  lag: number;
  stream_time_ms: number | null;
  late_rows: number;
  batch_ms: number;
  state_rows: number;
  state_bytes: number;
  restarts: number;
  last_error: { message: string; time_ms: number; detail?: string; recovered_ms?: number | null } | null;
  started_ms: number | null;
  updated_ms: number | null;
  plan?: string | null;
  spark_plan?: string | null;
}

export interface LateRow {
  topic: string;
  partition: number;
  offset: number;
  time_ms: number;
  stream_time_ms: number;
  window_start_ms: number;
  window_end_ms: number;
  late_by_ms: number;
  row: Fields;
}

export interface Through {
  arrival: number;
  offsets: Record<string, number>;
  /** After which a feed goes on where this ends. */
  id: string | null;
}

export interface View {
  name: string;
  version: number;
  kind: string;
  columns: Column[];
  window: unknown;
  topic: string;
  query_id: string | null;
  rows: number;
  through: Through | null;
  lag: number;
  rate: number;
}

export interface Bounds {
  start_ms: number;
  end_ms: number;
}

/** A record that a row is made of; `below` says what a record that a query wrote is made of. */
export interface MadeOf {
  source: string;
  topic: string;
  partition: number;
  offset: number;
  /** Null where the log gives no arrival numbers. */
  arrival: number | null;
  time_ms: number;
  value: Record<string, Value>;
  below?: { query_id: string; records: number; newest: MadeOf[]; same: boolean };
}

export interface Why {
  view: string;
  version: number;
  key: Record<string, Value>;
  window: Bounds | null;
  row: Record<string, Value> | null;
  recomputed: Record<string, Value> | null;
  verdict: "equal" | "different" | "unknown";
  differs: string[];
  records: number;
  page: MadeOf[];
  late: { topic: string; partition: number | null; offset: number | null; time_ms: number; late_by_ms: number; row: Record<string, Value> }[];
  late_total: number;
  dead: { offset: number; time_ms: number; topic: string; reason: string; text: string }[];
  dead_total: number;
  through: { arrival: number | null; inputs: Record<string, Record<string, number>> };
  looked_at: number;
  missing: string[];
  took_ms: number;
  left_out: MadeOf[];
  left_out_total: number;
  /** What WHERE and HAVING say. */
  condition: string;
  /** The view's retention or ROW_TTL_MS has let it go. */
  expired: boolean;
  /** By topic: records that have yet to be read, and may change the row. */
  unread: Record<string, number>;
  revision: { old: Record<string, Value> | null; late: number; time_ms: number } | null;
}

export interface Drift {
  key: Fields;
  window: Bounds | null;
  served: Fields | null;
  recomputed: Fields | null;
  time_ms: number;
}

export interface Check {
  view: string;
  version: number;
  rounds: number;
  rows: number;
  drifted: number;
  skipped: number;
  passes: number;
  last_ms: number;
  drift: Drift[];
}

/** In all, at each of the times; `drifted` is what differed then. */
export interface CareHistory {
  times_ms: number[];
  checked: number[];
  drifted: number[];
  late: number[];
}

export interface Revision {
  key: Fields;
  window: Bounds;
  old: Fields | null;
  new: Fields | null;
  late: number;
  time_ms: number;
}

export interface Repaired {
  windows: number;
  late: number;
  revised: number;
  revisions: Revision[];
  waiting: number;
  missing: string[];
  dry_run: boolean;
}

/** A stream or table that an answer is made of; `as_of` if it was asked AS OF TIMESTAMP. */
export interface Read {
  name: string;
  as_of?: { asked_ms: number; represents_ms: number | null; exact: boolean; hint: string | null };
}

export interface Answer {
  columns: Column[];
  rows: Value[][];
  view: string | null;
  version: number | null;
  through: Through | null;
  truncated: boolean;
  took_ms: number;
  reads?: Read[];
}

export interface Change {
  key: Fields | null;
  value: Fields | null;
  time_ms: number;
  window?: Window;
  snapshot?: boolean;
}

export interface StatementResult {
  statement: string;
  kind: string;
  message?: string | null;
  columns?: Column[] | null;
  rows?: Value[][] | null;
  text?: string | null;
  query_id?: string | null;
  plan?: PlanStep | null;
}

/** A step of a plan and those it reads from; a detail is a word such as `key`, and what it says. */
export interface PlanStep {
  title: string;
  details: [string, string][];
  inputs: PlanStep[];
}

export type NodeState = "ok" | "lagging" | "failed" | "starting" | "idle";

export interface TopologyNode {
  id: string;
  kind: "collector" | "topic" | "query" | "view";
  name: string;
  rate: number;
  state: NodeState;
  message: string | null;
  detail?: Record<string, unknown>;
}

export interface TopologyEdge {
  from: string;
  to: string;
  rate: number;
}

export interface Overview {
  project: string;
  version: string;
  uptime_s: number;
  nodes: TopologyNode[];
  edges: TopologyEdge[];
  totals: { events: number; rate: number; dead_letters: number; open_dead_letters: number; late_rows: number; bytes: number; alerts: number };
  engine: { state: string; pid: number | null };
}

export interface Completions {
  keywords: string[];
  functions: { name: string; kind: string; signature: string; summary: string }[];
  sources: { name: string; kind: string; columns: Column[] }[];
}

export interface Source {
  name: string;
  kind: string;
  topic: string;
  columns: Column[];
  window: unknown;
  statement: string;
  query_id: string | null;
  read_by: string[];
}

/** Records a second at each of the times, by a node's id; `total` is what arrived. */
export interface RatesHistory {
  times_ms: number[];
  rates: Record<string, number[]>;
}

/** Records, and where the page begins and ends. */
export interface RecordsPage {
  records: TopicEvent[];
  from: string;
  next: string;
  starts: string;
  ends: string;
  cut: boolean;
}

export interface GroupOffset {
  topic: string;
  partition: number;
  committed: number | null;
  end: number;
  lag: number;
  member: string | null;
}

export interface Group {
  name: string;
  state: "empty" | "rebalancing" | "stable";
  lag: number;
  members: { id: string; client: string; partitions: { topic: string; partition: number }[] }[];
  offsets: GroupOffset[];
}

export interface Queue {
  name: string;
  topic: string;
  lease_s: number;
  max_deliveries: number;
  order: string;
  ready: number;
  leased: number;
  delayed: number;
  dead: number;
  missing: number;
  error: string | null;
}

/** A version of a schema, as the registry has it. */
export interface Schema {
  subject: string;
  version: number;
  id: number;
  schema: string;
  schemaType?: string;
}

export interface JobRun {
  number: number;
  state: "queued" | "running" | "done" | "failed" | "waiting" | "cancelled" | "interrupted";
  why: "schedule" | "after" | "asked" | "again";
  started_ms: number;
  finished_ms: number | null;
  attempts: number;
  message: string;
  log: string;
}

export interface Job {
  name: string;
  run: string;
  about: string;
  every: string | null;
  schedule: string | null;
  zone: string;
  missed: "run" | "skip";
  after: string[];
  retries: number;
  next_ms: number | null;
  last: JobRun | null;
}
