/**
 * JSON of the API, as `holdfast … -o json` prints it: a job, its workers, and what befell it.
 * Times are RFC 3339 in UTC, measured spans are seconds.
 */

export interface RankName {
  worker: string;
  rank: number;
}

export interface Exit {
  attempt: number;
  generation: number;
  rank: number;
  exitCode: number | null;
  signal: number | null;
  coreDumped: boolean;
  reason: string;
  message: string;
  endTime: string | null;
  lateExit: Exit | null;
  raised: string | null;
}

/** The cores, memory and network cards next to a rank's GPU that it is bound to. */
export interface Binding {
  cpus: string;
  exclusive: boolean;
  memoryNodes: string;
  nics: string[];
  note: string;
}

/** Ranks of one generation that ended for the same reason and in the same way. */
export interface ExitsAlike {
  /** That of the rank that ended first. */
  first: Exit;
  /** Such as `0-18,20-63`. */
  ranks: string;
  count: number;
  lastEndTime: string | null;
}

export interface Worker {
  name: string;
  host: string;
  state: string;
  shimPid: number | null;
  gpus: string[];
  ranks: { rank: number; localRank: number; pid: number | null; binding?: Binding | null }[];
}

export interface Phases {
  detect: number | null;
  diagnose: number | null;
  stop: number | null;
  start: number | null;
  catchUp: number | null;
}

export interface Recovery {
  attempt: number;
  generation: number;
  startedAt: string;
  endedAt: string | null;
  startType: string;
  endReason: string;
  endRelatedTask: string;
  endRecover: string;
  lostSeconds: number | null;
  phases: Phases;
  related: { ranks: RankName[]; host: string; job: string; user: string } | null;
}

export interface Hang {
  number: number;
  generation: number;
  since: string;
  noticedAt: string;
  diagnosedAt: string | null;
  judgedAt: string | null;
  rule: string;
  sentence: string;
  suspects: string[];
  suspectRanks: RankName[];
  stacks: string;
  outcome: string;
  note: string;
  step: number | null;
}

export interface JobError {
  code: number;
  message: string;
  details: string[];
  exitCode: number | null;
  rank: number | null;
  raised: string;
  whyFinal: string;
}

export interface Pool {
  replicaCount?: number;
  processesPerWorker?: number;
  machineSpec?: { acceleratorCount?: number; acceleratorType?: string; gpuPartitionSize?: string; machineType?: string };
  processSpec?: { command?: string[]; args?: string[]; workingDirectory?: string };
  containerSpec?: { imageUri?: string };
}

export interface JobSpec {
  workerPoolSpecs?: Pool[];
  scheduling?: { priority?: number; maxWaitDuration?: string; spares?: number };
  [key: string]: unknown;
}

/** The job in words, as the command line and notifications say them. */
export interface Summary {
  /** WORKS, WAITS, RECOVERS, NEEDS_YOU or ENDED. */
  condition: string;
  /** One line for lists. */
  headline: string;
  health: string;
  happened: string;
  done: string;
  /** Ends in `command` where there is one. */
  advice: string;
  command: string;
}

/** The end of a job's training: between two times with a chance of 80 %, or why that isn't known. */
export interface ExpectedEnd {
  earliest: string | null;
  latest: string | null;
  words: string;
}

/** The array that a job is an element of, and how far that is. */
export interface JobArray {
  id: string;
  index: number;
  count: number;
  atOnce: number;
  running: number;
  waiting: number;
  done: number;
  failed: number;
}

/** A job as lists show it (`view=ROW`). */
export interface JobRow {
  id: string;
  displayName: string;
  labels: Record<string, string>;
  project: string;
  owner: string;
  state: string;
  createTime: string;
  startTime: string | null;
  endTime: string | null;
  error: JobError | null;
  attempt: number;
  generation: number;
  summary?: Summary | null;
  waitReason: string;
  step: number | null;
  stepTotal: number | null;
  phase: string;
  savedStep: number | null;
  /** Absent from an older controller. */
  expectedEnd?: ExpectedEnd | null;
  heldUntil: string | null;
  health: string;
  gpuCount?: number;
  hostCount?: number;
  recoveryCount?: number;
  hangCount?: number;
  /** Null where it was submitted by itself. */
  array?: JobArray | null;
}

export interface Job extends JobRow {
  jobSpec: JobSpec;
  annotations: Record<string, string>;
  account: string;
  /** Hosts of its own spares; absent from an older controller. */
  spareHosts?: string[];
  /** By generation, the first end first. */
  exitGroups: ExitsAlike[];
  recoveries: Recovery[];
  hangs: Hang[];
  archiveProblems: Record<string, string>;
}

/** What the tab of ranks shows beside the job. */
export interface Members {
  workers: Worker[];
}
