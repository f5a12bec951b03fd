/** What the API says of alerts. */

export interface AlertSubject {
  subject: string;
  state: "ok" | "pending" | "firing" | "resolved";
  since_ms: number | null;
  value: number | null;
  detail: string;
  fired: number;
}

export interface AlertDestination {
  to: string;
  waiting: number;
  told_ms: number | null;
  attempts: number;
  error: string | null;
}

export interface Alert {
  name: string;
  file: string;
  watch: string;
  about: string;
  rule: string;
  description: string;
  state: AlertSubject["state"] | "disabled";
  since_ms: number | null;
  subjects: AlertSubject[];
  destinations: AlertDestination[];
  problem: string | null;
}

export interface Alerts {
  alerts: Alert[];
  problems: { file: string; line: number; message: string; hint: string | null }[];
}

export interface AlertTrial {
  to: string;
  error: string | null;
}
