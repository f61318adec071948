/**
 * JSON of the API, as `holdfast … -o json` prints it: records of a job's run, which are its
 * events, output, figures and the evidence of hangs.
 * Times are RFC 3339 in UTC, measured spans are seconds.
 */

export interface JobEvent {
  cursor: number;
  type: string;
  time: string | null;
  message: string;
  state: string;
  event: ({ kind: string } & Record<string, unknown>) | null;
}

export interface LogChunk {
  worker: string;
  rank: number;
  generation: number;
  stream: string;
  offset: number;
  data: string;
  problem: string;
  /** Where each line of the data begins, when lines with a text were asked for. */
  lineOffsets?: number[];
}

/** One figure of one rank, or of the share of ranks that a band is of; null is unknown. */
export interface Series {
  figure: string;
  unit: string;
  rank: number | null;
  quantile: number | null;
  mean: (number | null)[];
}

export interface SeriesPage {
  since: string;
  step: number;
  points: number;
  series: Series[];
  recordings: { name: string; worker: string; generation: number; rank: number | null; since: string; until: string }[];
  problem: string;
  nextPageToken: string;
  keptSince: string | null;
}

/** What was seen of one worker that may hang; keys with their defaults are left out of `evidence`. */
export interface WorkerEvidence {
  worker: string;
  host: string;
  problem: string;
  /** Ranks of one group are at the same place. */
  stacks?: { rank: number; group: string; place: string; waits: boolean; moving: string; collective: string; problem: string }[];
  evidence: {
    takenAtS?: number;
    /** Function, file and line. */
    frames: [string, string, number][];
    ranks?: {
      rank?: number;
      process?: { looks?: { python?: { threads?: { main?: boolean; frames?: number[]; framesCut?: number }[] } }[] };
      stdout?: string[];
      stderr?: string[];
    }[];
  } | null;
}
