/** What the API answers about versions of views, deployments and plans. */

import type { Fields } from "./types";

/** Of a Lambda version: the batch layer ends at the cut, the stream begins there. */
export interface Layers {
  cut: number | null;
  inputs?: Record<string, Record<string, number>>;
  batch_query: string;
  speed_query: string;
  /** Null while the batch layer is computed. */
  batch_rows: number | null;
  made_ms: number | null;
  refresh_ms: number | null;
}

export interface Version {
  version: number;
  state: "building" | "caught up" | "serving" | "retired" | "failed";
  topic: string;
  query_id: string | null;
  deployment: number;
  since_ms: number;
  /** From when to when it served; 0 if that is not known, or has not ended. */
  served: [number, number][];
  kept_until_ms: number | null;
  rows: number | null;
  lag: number | null;
  statement: string;
  strategy: "kappa" | "lambda";
  layers: Layers | null;
}

export interface Build {
  name: string;
  query_id: string;
  state: string;
  read: number;
  left: number;
  rows_per_second: number;
  seconds_left: number | null;
  /** From 0 to 1; no further than what it reads. */
  done: number;
}

/** Two versions of a view, compared at the same records. */
export interface Comparison {
  view: string;
  old: number;
  new: number;
  /** An arrival number; null where the log gives none, and `inputs` says the place by topic and partition. */
  cut: number | null;
  inputs?: Record<string, Record<string, number>>;
  same: number;
  changed: number;
  only_old: number;
  only_new: number;
  columns_added: string[];
  columns_removed: string[];
  deltas: { column: string; rows: number; total: number; largest: number }[];
  windows?: { start: number; same: number; different: number }[];
  samples: Sample[];
}

/** A row that differs, as it is in both versions. */
export interface Sample {
  key: Fields;
  old: Fields | null;
  new: Fields | null;
  window: { start: number; end: number } | null;
  /** The columns that differ, new minus old; null where that is no number. Not in the samples of a deployment. */
  deltas?: Record<string, number | null>;
}

/** Two versions, compared because somebody asked. */
export interface Difference {
  id: number;
  view: string;
  old: number;
  new: number;
  state: "waiting" | "comparing" | "done" | "failed";
  error: { code: string; message: string; detail?: string | null; hint?: string | null } | null;
  comparison: Comparison | null;
  keys: string[];
  columns: string[];
  windowed: boolean;
}

export interface DifferencePage {
  rows: Sample[];
  matching: number;
  /** Where to go on; null if these are the last. */
  next: number | null;
}

export interface Deployment {
  id: number;
  stage: "building" | "comparing" | "waiting" | "switching" | "switched" | "cancelled" | "failed" | "rolled back";
  detail: string;
  who: string;
  started_ms: number;
  changed_ms: number;
  paused: boolean;
  strategy: string;
  max_changed: number | null;
  rows_per_second: number;
  items: { name: string; verdict: string; version: number; before: number; statement: string; old_statement: string }[];
  builds: Build[];
  comparisons: Comparison[];
}

/** What a plan would do to one name. */
export interface PlannedChange {
  name: string;
  verdict: string;
  reason: string;
  hint: string;
  dependents: string[];
  alerts: string[];
  replays: number;
  seconds: number | null;
  warnings: string[];
  version: number;
  serving: number;
  statement: string;
  old_statement: string;
}
