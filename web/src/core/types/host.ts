/**
 * JSON of the API, as `holdfast … -o json` prints it: a host, its GPUs, and what was found and measured on it.
 * Times are RFC 3339 in UTC, measured spans are seconds.
 */

export interface Gpu {
  uuid: string;
  index: number;
  model: string;
  memoryBytes: number;
  problem: string;
  jobId: string;
  /** Each number of free GPUs is of those that are FREE. */
  state: "WITHHELD" | "USED" | "UNHEALTHY" | "UNAVAILABLE" | "RESERVED" | "FREE";
  faults: { cause: string; repair: string; since: string | null; count: number }[];
}

/** A check of a host that fails; enums are UNSPECIFIED where they say nothing. */
export interface Check {
  check: string;
  /** WARNING or ERROR. */
  status: string;
  saw: string;
  why: string;
  fix: string[];
  since: string | null;
  keepsWorkAway: boolean;
  /** Of a finding about hardware: FAIL, CORDON, DEGRADED or INFORM. */
  health: string;
  /** ADMIN or BRAKE, where the host gets work in spite of it. */
  waived: string;
}

/** Of the last 90 days; spans in seconds. */
export interface Reliability {
  since: string | null;
  inService: number | null;
  failures: number;
  kinds: Record<string, number>;
  mtbf: number | null;
  mtbfLow: number | null;
  mtbfHigh: number | null;
  repairs: number;
  mttr: number | null;
  mttrLow: number | null;
  mttrHigh: number | null;
  ratio: number;
  ratioLow: number;
  surprise: number;
  lemon: boolean;
}

export interface Maintenance {
  start: string | null;
  end: string | null;
  reason: string;
  by: string;
  begun: boolean;
}

export interface Host {
  name: string;
  state: string;
  cordoned: boolean;
  cordonReason: string;
  cordonedBy: string;
  cordonedSince: string | null;
  maintenance: Maintenance | null;
  failedChecks: Check[];
  strangeWork: { jobId: string }[];
  inDoubt: boolean;
  /** The setting that keeps it back for jobs that lose a host; empty: none. */
  spare: string;
  /** Classes of hosts that it is of; absent from an older controller. */
  machineTypes?: string[];
  draining: boolean;
  drained: boolean;
  goingDown: boolean;
  goingDownSince: string | null;
  agentStoppedAt: string | null;
  /** While it is lost: when it was last heard. */
  silentSince: string | null;
  /** While it is silent: when it is lost unless it is heard again. */
  lostAt: string | null;
  labels: Record<string, string>;
  address: string;
  agentVersion: string;
  refused: string;
  lastSeen: string | null;
  cpuCount: number;
  cpuReserved: number;
  memoryBytes: number;
  memoryReservedBytes: number;
  workers: number;
  maxWorkers: number;
  gpuProblem: string;
  gpus: Gpu[];
  jobIds: string[];
  /** Only of one host that is asked for. */
  reliability?: Reliability;
  measurements?: Measurements;
}

/** An active check of a host that has ended. */
export interface Measurement {
  time: string | null;
  jobId: string;
  reason: string;
  /** MEASURED, ERROR or STOPPED. */
  outcome: string;
  /** The other host, where the network between two was measured. */
  partner: string;
  /** By name; more is better. */
  figures: Record<string, number>;
  /** What could not be measured, or what stopped it. */
  problem: string;
}

export interface Measurements {
  /** The newest of each kind, the oldest first. */
  results: Measurement[];
  runningJobId: string;
  /** Why a check is due; UNSPECIFIED where none is. */
  due: string;
  /** What other hosts like it have of each figure of its newest results. */
  usual: Record<string, number>;
}

export interface HostEvent {
  cursor: number;
  time: string | null;
  message: string;
  event: { kind: string; check?: Check | string } | null;
}
