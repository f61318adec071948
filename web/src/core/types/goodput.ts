/**
 * JSON of the API, as `holdfast … -o json` prints it: where GPU time went, of a job and in sums.
 * Times are RFC 3339 in UTC, measured spans are seconds.
 */

export interface GoodputLine {
  category: string;
  cause: string;
  payer: string;
  ms: number;
}

export interface Goodput {
  unit: string;
  since: string | null;
  until: string | null;
  ended: boolean;
  complete: boolean;
  level: string;
  interruptions: number;
  goodput: number | null;
  totalMs: number;
  /** Part of it, in which GPUs were found unused. */
  unusedMs: number;
  /** Part of it that was lost as the job was slower than at its best; absent from an older controller. */
  slowedMs?: number;
  /** Checkpoints that were complete, the oldest first. */
  saves: { time: string | null; step: number | null }[];
  /** Since when one of its hosts is silent: what ran there is not known. */
  silentSince: string | null;
  lines: GoodputLine[];
}

/** Time of one name, which is under the key that the sum was asked `by`. */
export interface GoodputRow {
  project?: string;
  owner?: string;
  host?: string;
  model: string;
  unit: string;
  category: string;
  payer: string;
  ms: number;
}

export interface GoodputSum {
  rows: GoodputRow[];
  truncated: boolean;
  completeSince: string | null;
}
