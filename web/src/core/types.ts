/** The API's JSON, as `holdfast … -o json` prints it. Times are RFC 3339 in UTC, measured spans are seconds. */

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

export interface Attention {
  kind: string;
  subject: string;
  message: string;
  since: string | null;
}

export interface Status {
  cluster: string;
  version: string;
  started: string;
  epoch: number;
  hosts: Record<string, number>;
  gpus: Record<string, number>;
  jobs: Record<string, number>;
  agents: Record<string, number>;
  attention: Attention[];
  attentionMore: number;
  /** The message of the day. */
  motd: { text: string; by: string; time: string } | null;
  /** Of the controller: own and ca. */
  certificates: { name: string; end: string | null }[];
  deliveries: { waiting: number; delivered: number; failing: number; givenUp: { to: string; count: number; reason: string }[] } | null;
  /** Where several controllers share a database. */
  leadership: Leadership | null;
  /** Labels that name the levels of the network, the outermost first; absent from an older controller. */
  topology?: string[];
}

export interface Leadership {
  database: string;
  leader: string;
  /** What a failover of the database may lose; empty where nothing. */
  risk: string;
  standbyDetails: { machine: string; behindEvents: number; differingSettings: string }[];
}

export interface Me {
  cluster: string;
  user: { name: string; grants: { project: string; role: string }[]; accounts: string[]; configuredAdmin: boolean };
  certificateEnd: string | null;
}

/** What changed since the last entry of `/v1/changes`; `all`: fetch everything shown again. */
export interface Changes {
  cursor: number;
  jobs: string[];
  hosts: string[];
  all: boolean;
  /** Schedules or templates too; absent from an older controller. */
  plans?: boolean;
}
