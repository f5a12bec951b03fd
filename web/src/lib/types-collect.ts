/** What the API answers about collectors. */

import type { Fields } from "./types";

export interface Collector {
  name: string;
  /** Empty where the file cannot be read. */
  type: string;
  where: "http" | "listen" | "pull" | null;
  topic: string;
  file: string;
  state: "running" | "waiting" | "failed" | "disabled";
  detail: string;
  problem: string | null;
  rate: number;
  received: number;
  accepted: number;
  duplicates: number;
  rejected: number;
  shed: number;
  refused: number;
  bytes: number;
  errors: number;
  last_error: string | null;
  last_error_ms: number | null;
  last_event_ms: number | null;
  connections: number;
  /** Of an agent: what each source, channel and sink counts since it was started. */
  components: Record<string, Record<string, number>>;
}

export interface CollectorDetail extends Collector {
  settings: Fields;
  example: string;
  sample: Fields | null;
  page: string;
  /** Ways past what it hides. */
  warnings: string[];
}

export interface CollectorKind {
  name: string;
  where: "http" | "listen" | "pull";
  summary: string;
  page: string;
}

export interface TrialResult {
  outcome: "accepted" | "duplicate" | "rejected" | "shed";
  event: Fields;
  topic: string;
  partition: number | null;
  offset: number | null;
  rejected: { index: number; reason: string; dead_letter: number | null }[];
}

type WorkerState = "starting" | "running" | "waiting" | "failed" | "stopped";

/** A function that is called with a topic's records. */
export interface TopicFunction {
  status: {
    name: string;
    file: string;
    topic: string;
    to: string;
    state: WorkerState;
    summary: string;
    records: number;
    written: number;
    rejected: number;
    missed: number;
    error: string | null;
    error_ms: number | null;
  };
  lag: number;
  rate: number;
}

/** One of Firehose's delivery streams. */
export interface Delivery {
  status: {
    name: string;
    /** The stream it reads; empty where records are put into it. */
    source: string;
    topic: string;
    to: string;
    format: "plain" | "gzip" | "parquet" | "topic";
    transform: string;
    state: WorkerState;
    records: number;
    rejected: number;
    files: number;
    buffered: number;
    buffered_bytes: number;
    buffered_since_ms: number | null;
    file_bytes: number;
    file_seconds: number;
    last_file: string | null;
    last_file_ms: number | null;
    error: string | null;
    error_ms: number | null;
  };
  lag: number;
  rate: number;
}
