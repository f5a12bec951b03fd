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
}

export interface CollectorDetail extends Collector {
  settings: Fields;
  example: string;
  sample: Fields | null;
  page: string;
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
