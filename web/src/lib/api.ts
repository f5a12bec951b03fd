/** The public HTTP API, typed. Everything the console knows comes through here. */

import { session } from "./session.svelte";
import type { Alerts, AlertTrial } from "./types-alerts";
import type {
  Answer,
  CareHistory,
  Check,
  Completions,
  DeadLetter,
  Fields,
  Group,
  Job,
  JobRun,
  LateRow,
  Overview,
  Query,
  Queue,
  RatesHistory,
  RecordsPage,
  Redriven,
  Repaired,
  Revision,
  Schema,
  SendResult,
  Source,
  StatementResult,
  Topic,
  TopicEvent,
  View,
  Why,
} from "./types";
import type { Collector, CollectorDetail, CollectorKind, Delivery, TopicFunction, TrialResult } from "./types-collect";
import type { Deployment, Difference, DifferencePage, PlannedChange, Version } from "./types-deploy";

export interface RedriveOrder {
  where?: string;
  set: Record<string, string>;
  preview: boolean;
}

export interface ErrorBody {
  code: string;
  message: string;
  detail?: string;
  hint?: string;
  line?: number;
  column?: number;
  length?: number;
  source_line?: string;
  statement?: number;
}

/** An answer that is not a success. `status` 0 means that there was no answer at all. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly body: ErrorBody,
    /** What had been done before it failed, for statements. */
    readonly results: StatementResult[] = [],
  ) {
    super(body.message);
    this.name = "ApiError";
  }

  get hint(): string | null {
    return this.body.hint ?? null;
  }

  get unreachable(): boolean {
    return this.status === 0;
  }
}

/** Whole numbers beyond 2^53 stay exact, as BigInt, where the browser can hand over their text. */
export function parseJson(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const exact = (_: string, value: unknown, context?: { source?: string }): unknown =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context!.source!)
      : value;
  return JSON.parse(text, exact as (key: string, value: unknown) => unknown);
}

export function errorFromText(status: number, text: string): ApiError {
  try {
    const body = parseJson(text) as { error?: ErrorBody; results?: StatementResult[] };
    if (body.error?.message) return new ApiError(status, body.error, body.results);
  } catch {
    // Not ours: a proxy's page, or nothing.
  }
  return new ApiError(status, { code: "http", message: `the server answered ${status}` });
}

/** A response that succeeded. Asks for the key on 401 and tries again with it. */
export async function open(path: string, init: RequestInit = {}): Promise<Response> {
  for (;;) {
    const headers = new Headers(init.headers);
    const key = session.key;
    if (key) headers.set("Authorization", `Bearer ${key}`);
    let response: Response;
    try {
      response = await fetch(address(path), { ...init, headers });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new ApiError(0, { code: "unreachable", message: "the server does not answer" });
    }
    if (response.ok) return response;
    if (response.status === 401) {
      await response.body?.cancel();
      await session.ask(key, init.signal ?? null);
      continue;
    }
    throw errorFromText(response.status, await response.text());
  }
}

export async function call<T>(path: string, init: RequestInit = {}): Promise<T> {
  const response = await open(path, init);
  const text = await response.text();
  return (text ? parseJson(text) : null) as T;
}

export function post(body: unknown, signal?: AbortSignal): RequestInit {
  const init: RequestInit = {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  return signal ? { ...init, signal } : init;
}

/** Relative to the page, so that a prefix added by a proxy is kept. */
export function address(path: string): string {
  return new URL(path.replace(/^\//, ""), document.baseURI).href;
}

/** A name as a part of an address. The server takes an encoded slash for a slash, and so for another address. */
export function part(name: string): string {
  if (name.includes("/") || name === "." || name === "..") throw new ApiError(404, { code: "not_found", message: `\`${name}\` does not exist` });
  return encodeURIComponent(name);
}

export const api = {
  overview: () => call<Overview>("/v1/overview"),
  history: () => call<RatesHistory>("/v1/overview/history"),
  topics: () => call<{ topics: Topic[] }>("/v1/topics").then((answer) => answer.topics),
  topic: (name: string) => call<Topic>(`/v1/topics/${part(name)}`),
  events: (name: string, limit = 50) =>
    call<{ events: TopicEvent[] }>(`/v1/topics/${part(name)}/events?from=newest&limit=${limit}`).then((a) => a.events),
  records: (name: string, query: Record<string, string>) =>
    call<RecordsPage>(`/v1/topics/${part(name)}/records?${new URLSearchParams(query)}`),
  groups: () => call<{ groups: Group[] }>("/v1/groups").then((answer) => answer.groups),
  queues: () => call<{ queues: Queue[] }>("/v1/queues").then((answer) => answer.queues),
  deadLetters: (name: string, limit = 50) =>
    call<{ dead_letters: DeadLetter[]; total: number }>(`/v1/topics/${part(name)}/dead-letters?limit=${limit}`),
  redrive: (name: string, order: RedriveOrder) => call<Redriven>(`/v1/topics/${part(name)}/dead-letters/redrive`, post(order)),
  queries: () => call<{ queries: Query[] }>("/v1/queries").then((answer) => answer.queries),
  query: (id: string) => call<Query>(`/v1/queries/${part(id)}`),
  startQuery: (id: string) => call<Query>(`/v1/queries/${part(id)}/start`, post({})),
  stopQuery: (id: string) => call<Query>(`/v1/queries/${part(id)}/stop`, post({})),
  late: (id: string, limit = 50) =>
    call<{ late: LateRow[]; total: number }>(`/v1/queries/${part(id)}/late?limit=${limit}`),
  views: () => call<{ views: View[] }>("/v1/views").then((answer) => answer.views),
  view: (name: string) => call<View>(`/v1/views/${part(name)}`),
  why: (name: string, parameters: Record<string, string>) => call<Why>(`/v1/views/${part(name)}/why?${new URLSearchParams(parameters)}`),
  check: (name: string) => call<Check>(`/v1/views/${part(name)}/check`),
  checks: () => call<{ checks: Check[] }>("/v1/checks").then((answer) => answer.checks),
  checkNow: (name: string) => call<Check>(`/v1/views/${part(name)}/check?rows=500`, post({})),
  care: (name: string) => call<CareHistory>(`/v1/views/${part(name)}/check/history`),
  repair: (name: string, dry_run: boolean) => call<Repaired>(`/v1/views/${part(name)}/repair`, post({ dry_run })),
  revisions: (name: string) => call<{ revisions: Revision[]; total: number }>(`/v1/views/${part(name)}/revisions?limit=1000`),
  rows: (name: string, parameters: Record<string, string>) =>
    call<Answer>(`/v1/views/${part(name)}/rows?${new URLSearchParams(parameters)}`),
  versions: (name: string) => call<{ versions: Version[] }>(`/v1/views/${part(name)}/versions`).then((answer) => answer.versions),
  compareVersions: (name: string, pair: { old: number; new: number }, signal?: AbortSignal) => call<Difference>(`/v1/views/${part(name)}/diff`, post(pair, signal)),
  difference: (name: string, id: number, signal?: AbortSignal) => call<Difference>(`/v1/views/${part(name)}/diff/${id}`, signal ? { signal } : {}),
  differenceRows: (name: string, id: number, query: Record<string, string>, signal?: AbortSignal) =>
    call<DifferencePage>(`/v1/views/${part(name)}/diff/${id}/rows?${new URLSearchParams(query)}`, signal ? { signal } : {}),
  differenceFile: (name: string, id: number, query: Record<string, string>) => `/v1/views/${part(name)}/diff/${id}/export?${new URLSearchParams(query)}`,
  deployments: () => call<{ deployments: Deployment[] }>("/v1/deployments").then((answer) => answer.deployments),
  deployment: (id: number) => call<Deployment>(`/v1/deployments/${id}`),
  actOnDeployment: (id: number, action: "pause" | "resume" | "approve" | "cancel") => call<Deployment>(`/v1/deployments/${id}/${action}`, post({})),
  throttle: (id: number, rows: number) => call<Deployment>(`/v1/deployments/${id}/throttle`, post({ rows_per_second: rows })),
  deploy: () => call<{ deployment: Deployment | null }>("/v1/deployments", post({ who: "console" })),
  restore: (id: number, before: boolean) => call<{ deployment: Deployment | null }>(`/v1/deployments/${id}/restore`, post({ who: "console", before })),
  refreshView: (name: string) => call<Deployment>(`/v1/views/${part(name)}/refresh`, post({ who: "console" })),
  rollBack: (name: string) => call<Deployment>(`/v1/views/${part(name)}/rollback`, post({})),
  collectors: () => call<{ collectors: Collector[]; kinds: CollectorKind[] }>("/v1/collectors"),
  collector: (name: string) => call<CollectorDetail>(`/v1/collectors/${part(name)}`),
  tryCollector: (name: string, event: Fields | null) => call<TrialResult>(`/v1/collectors/${part(name)}/test`, post({ event })),
  functions: () => call<{ functions: TopicFunction[] }>("/v1/functions").then((answer) => answer.functions),
  deliveries: () => call<{ deliveries: Delivery[] }>("/v1/deliveries").then((answer) => answer.deliveries),
  jobs: () => call<{ jobs: Job[]; problem: string | null }>("/v1/jobs"),
  job: (name: string) => call<Job & { runs: JobRun[] }>(`/v1/jobs/${part(name)}`),
  runJobs: (names: string[]) => call<{ runs: { job: string; number: number }[] }>("/v1/jobs", post({ jobs: names })),
  cancelJob: (name: string) => call<Job>(`/v1/jobs/${part(name)}/cancel`, post({})),
  alerts: () => call<Alerts>("/v1/alerts"),
  testAlert: (name: string) => call<{ told: AlertTrial[] }>(`/v1/alerts/${part(name)}/test`, post({})).then((answer) => answer.told),
  plan: () => call<{ changes: PlannedChange[] }>("/v1/plan", post({})).then((answer) => answer.changes),
  sources: () => call<{ sources: Source[] }>("/v1/sources").then((answer) => answer.sources),
  pull: (sql: string) => call<Answer>("/v1/query", post({ sql })),
  metrics: () => open("/metrics").then((response) => response.text()),
  completions: () => call<Completions>("/v1/completions"),
  validate: (sql: string, signal?: AbortSignal) =>
    call<{ ok: boolean; error?: ErrorBody }>("/v1/validate", post({ sql }, signal)),
  statements: (sql: string, signal?: AbortSignal, settings: Record<string, string> = {}) =>
    call<{ results: StatementResult[]; error?: ErrorBody }>("/v1/statements", post({ sql, settings }, signal)),

  /** Of a topic's value and key, all versions of their schemas, oldest first; nothing where there is no registry. */
  async schemas(topic: string): Promise<Schema[][]> {
    try {
      const wanted = [`${topic}-value`, `${topic}-key`];
      const known = await call<string[]>(`/registry/subjects?subjectPrefix=${part(`${topic}-`)}`);
      return await Promise.all(wanted.filter((subject) => known.includes(subject)).map(versionsOf));
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return [];
      throw error;
    }
  },

  /** Sends one record with all its parts. A refusal (422) is a result too. */
  async sendRecord(topic: string, record: Record<string, unknown>): Promise<SendResult> {
    const response = await fetchAllowing422(`/v1/topics/${part(topic)}/records`, post({ records: [record] }));
    return parseJson(await response.text()) as SendResult;
  },

  /** Sends events as they were typed. A refusal of all of them (422) is a result too, not a failure. */
  async send(topic: string, body: string): Promise<SendResult> {
    const headers = { "Content-Type": body.trim().includes("\n{") ? "application/x-ndjson" : "application/json" };
    const path = `/v1/topics/${part(topic)}/events`;
    const init = { method: "POST", headers, body };
    const response = await fetchAllowing422(path, init);
    return parseJson(await response.text()) as SendResult;
  },
};

async function versionsOf(subject: string): Promise<Schema[]> {
  const path = `/registry/subjects/${part(subject)}/versions`;
  return Promise.all((await call<number[]>(path)).map((version) => call<Schema>(`${path}/${version}`)));
}

async function fetchAllowing422(path: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  if (session.key) headers.set("Authorization", `Bearer ${session.key}`);
  const response = await fetch(address(path), { ...init, headers }).catch(() => null);
  if (!response) throw new ApiError(0, { code: "unreachable", message: "the server does not answer" });
  if (response.ok) return response;
  if (response.status === 401) return open(path, init);
  const text = await response.text();
  if (response.status === 422 && text.includes('"rejected"')) return new Response(text);
  throw errorFromText(response.status, text);
}
