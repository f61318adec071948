/** Members of a job's gang and how they ended, as the command line shows them. */
import { numbersOf } from "./ranks.ts";
import type { Binding, Exit, ExitsAlike, Hang, Job, JobArray, JobRow, JobSpec, Recovery, Worker } from "./types/job.ts";
import { epoch, short, whole } from "./words.ts";

/** Workers, ranks and GPUs that the whole job asks for. */
export function gang(spec: JobSpec): { workers: number; ranks: number; gpus: number } {
  const total = { workers: 0, ranks: 0, gpus: 0 };
  for (const pool of spec.workerPoolSpecs ?? []) {
    const replicas = pool.replicaCount ?? 0;
    total.workers += replicas;
    total.ranks += replicas * Math.max(1, pool.processesPerWorker ?? 0);
    total.gpus += replicas * (pool.machineSpec?.acceleratorCount ?? 0);
  }
  return total;
}

/** Which GPUs and hosts its workers ask for: `H100, MIG 1g.10gb, machine type big`; empty for any. */
export function machines(spec: JobSpec): string {
  const words = (spec.workerPoolSpecs ?? []).filter((pool) => pool.replicaCount).map(({ machineSpec: asks }) =>
    [asks?.acceleratorType, asks?.gpuPartitionSize && `MIG ${asks.gpuPartitionSize}`, asks?.machineType && `machine type ${asks.machineType}`]
      .filter(Boolean).join(", ") || "any");
  const found = [...new Set(words)];
  return found.every((each) => each === "any") ? "" : found.join("; ");
}

const SIGNALS: Record<number, string> = {
  1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
  9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
  16: "SIGSTKFLT", 17: "SIGCHLD", 18: "SIGCONT", 19: "SIGSTOP", 20: "SIGTSTP", 21: "SIGTTIN", 22: "SIGTTOU",
  23: "SIGURG", 24: "SIGXCPU", 25: "SIGXFSZ", 26: "SIGVTALRM", 27: "SIGPROF", 28: "SIGWINCH", 29: "SIGIO",
  30: "SIGPWR", 31: "SIGSYS",
};

/** `exit code 7`, `signal 11 (SIGSEGV), core dumped`; `unknown` where neither is known. */
export function exitInWords(exit: Exit): string {
  if (exit.signal !== null) {
    const name = SIGNALS[exit.signal] ?? (exit.signal > 34 ? `SIGRTMIN+${exit.signal - 34}` : `SIG${exit.signal}`);
    return `signal ${exit.signal} (${name})${exit.coreDumped ? ", core dumped" : ""}`;
  }
  return exit.exitCode === null ? "unknown" : `exit code ${exit.exitCode}`;
}

/** The message, with the bare fact before it and the exception behind it where it does not tell them. */
export function exitText(exit: Exit): string {
  const number = exit.signal || exit.exitCode;
  const told = (exit.signal === null && exit.exitCode === null) || exit.message.includes(String(number));
  const text =
    exit.message && told ? exit.message : [exitInWords(exit), exit.message].filter(Boolean).join(": ");
  return !exit.raised || text.includes(exit.raised) ? text : `${text}; it raised ${exit.raised}`;
}

export interface ExitRow {
  generation: number;
  ranks: string;
  ended: number | null;
  reason: string;
  text: string;
  late: string;
}

/** How ranks ended, those that ended alike on one row; by generation, the first end first. */
export function exitRows(groups: readonly ExitsAlike[]): ExitRow[] {
  return groups.map(({ first, ranks }) => ({
    generation: first.generation,
    ranks,
    ended: epoch(first.endTime),
    reason: first.reason,
    text: exitText(first),
    late: first.lateExit ? `${first.lateExit.reason}: ${exitText(first.lateExit)}` : "",
  }));
}

const ANSWERS: Record<string, string> = {
  PROC_RESTART: "restarted in place",
  POD_RESCHEDULE: "worker moved",
  WORKER_RESCHEDULE: "worker moved",
  JOB_RESCHEDULE: "placed again",
  JOB_RESCHEDULE_WITH_TAINT: "placed again, bad host cordoned",
  JOB_RESCHEDULE_WITH_CORDON: "placed again, bad host cordoned",
};

/** What was done about a failure, in words; a new answer is shown as it was sent. */
export function answer(recovery: Recovery): string {
  return ANSWERS[recovery.endRecover] ?? (recovery.endRecover || "-");
}

export const PHASES = ["detect", "diagnose", "stop", "start", "catchUp"] as const;
export const phaseName = (phase: (typeof PHASES)[number]): string => (phase === "catchUp" ? "catch up" : phase);

/** `stop 2.9s, start 110ms`. */
export function phasesInWords(recovery: Recovery): string {
  return PHASES.map((phase) => [phaseName(phase), recovery.phases[phase] ?? 0] as const)
    .filter(([, spent]) => spent >= 0.0005)
    .map(([name, spent]) => `${name} ${short(spent)}`)
    .join(", ");
}

/** `3 recoveries, 2m 10s lost`; only finished ones count as lost. */
export function recoverySummary(recoveries: readonly Recovery[]): string {
  const number = recoveries.length;
  const over = recoveries.filter((each) => each.lostSeconds !== null);
  const words = `${number} recover${number === 1 ? "y" : "ies"}`;
  if (!over.length) return `${words}, going on`;
  const lost = over.reduce((sum, each) => sum + (each.lostSeconds ?? 0), 0);
  const more = over.length === number ? "" : ` so far, ${number - over.length} of them going on`;
  return `${words}, ${short(lost)} lost${more}`;
}

/** Outcomes of a hang that is told of and left as it is. */
const LEFT = new Set(["", "WOULD_RESTART", "WITHHELD"]);

/** Whether the hang is not over: it was only reported, or nothing was decided yet. */
export function goesOn(job: Job, hang: Hang): boolean {
  return LEFT.has(hang.outcome) && hang.generation === job.generation && job.state === "JOB_STATE_RUNNING";
}

const OUTCOMES: Record<string, string> = {
  RESTARTED: "relaunched", WOULD_RESTART: "only reported", WITHHELD: "not acted on", OVER: "went on by itself",
  BUDGET_SPENT: "no restart was left", ENDED: "ended before it was decided",
};

/** What became of a hang, in words; a new outcome is shown as it was sent. */
export function hangOutcome(job: Job, hang: Hang): string {
  const known = OUTCOMES[hang.outcome] ?? hang.outcome.toLowerCase().replaceAll("_", " ");
  return [goesOn(job, hang) ? "goes on" : "", known].filter(Boolean).join(", ") || "over";
}

/** `1200/5000`; empty where no step is known. */
export function steps(job: Pick<JobRow, "step" | "stepTotal">): string {
  if (job.step === null) return "";
  return job.stepTotal === null ? whole(job.step) : `${whole(job.step)}/${whole(job.stepTotal)}`;
}

/** The controller's one line about the job; of an older one, why it waits, failed, or was restarted. */
export function lastWord(job: JobRow): string {
  if (job.summary?.headline) return job.summary.headline;
  if (job.error) {
    const who = job.error.rank === null ? "" : `rank ${job.error.rank}: `;
    return job.error.raised ? `${who}${job.error.raised}` : job.error.message;
  }
  if (job.waitReason) return job.waitReason;
  const hangs = job.hangCount ?? 0;
  const recoveries = job.recoveryCount ?? 0;
  return [
    recoveries ? `${recoveries} recover${recoveries === 1 ? "y" : "ies"}` : "",
    hangs ? `${hangs} hang${hangs === 1 ? "" : "s"}` : "",
  ]
    .filter(Boolean)
    .join(", ");
}

/** Seconds since the first launch, up to the end; null before it, and while it waits for another. */
export function ran(job: JobRow, now: number): number | null {
  const start = epoch(job.startTime);
  if (start === null || job.state === "JOB_STATE_QUEUED" || job.state === "JOB_STATE_PAUSED") return null;
  return (epoch(job.endTime) ?? now) - start;
}

export interface RankRow {
  rank: number;
  worker: Worker;
  pid: number | null;
  exit: Exit | null;
  /** Its state in words. */
  state: string;
  bad: boolean;
}

const WELL = new Set(["COMPLETED", "STOPPED"]);

/** Each rank with its worker, host and exit of the present generation; those that are unlike most of them first. */
export function rankRows(job: Job, workers: readonly Worker[]): RankRow[] {
  const suspects = new Set(job.hangs.filter((hang) => goesOn(job, hang)).flatMap((hang) => hang.suspectRanks.map((each) => each.rank)));
  const exits = new Map<number, { exit: Exit; state: string }>();
  for (const { first, ranks } of job.exitGroups) {
    if (first.generation !== job.generation) continue;
    const ended = { exit: first, state: `${first.reason}: ${exitText(first)}` };
    for (const rank of numbersOf(ranks)) exits.set(rank, ended);
  }
  const rows = workers.flatMap((worker) => worker.ranks.map(({ rank, pid }): RankRow => {
    const ended = exits.get(rank);
    const suspect = !ended && suspects.has(rank);
    const state = ended?.state ?? (suspect ? "suspect of the hang" : worker.state.toLowerCase());
    return { rank, worker, pid, exit: ended?.exit ?? null, state, bad: suspect || (!!ended && !WELL.has(ended.exit.reason)) };
  }));
  const alike = tally(rows);
  const most = [...alike].reduce((a, b) => (b[1].length > a[1].length ? b : a), ["", [] as number[]])[0];
  return rows.sort((a, b) => Number(b.bad) - Number(a.bad) || Number(a.state === most) - Number(b.state === most) || a.rank - b.rank);
}

/** The ranks in each state, in words. */
export function tally(rows: readonly RankRow[]): Map<string, number[]> {
  const found = new Map<string, number[]>();
  for (const { state, rank } of rows) {
    const ranks = found.get(state);
    if (ranks) ranks.push(rank);
    else found.set(state, [rank]);
  }
  return found;
}

const MOST_NICS = 4;

/** What each bound rank is bound to, as the command line prints it. */
export function bindings(workers: readonly Worker[]): { rank: number; words: string }[] {
  return workers
    .flatMap((worker) => worker.ranks.flatMap(({ rank, binding }) => (binding ? [{ rank, words: boundTo(binding) }] : [])))
    .sort((a, b) => a.rank - b.rank);
}

function boundTo({ cpus, exclusive, memoryNodes, nics, note }: Binding): string {
  const said = [
    cpus && `CPUs ${cpus}${exclusive ? " of its own" : ""}`,
    memoryNodes && `memory of node ${memoryNodes}`,
    cpus && nics.slice(0, MOST_NICS).join(", "),
  ].filter(Boolean).join(", ");
  return [said, note].filter(Boolean).join("; ");
}

/** `2, on host-3, host-4, idle until a worker has to leave its host`; empty where a job asks for no spares. */
export function spares(job: Job): string {
  const wanted = job.jobSpec.scheduling?.spares ?? 0, hosts = job.spareHosts ?? [];
  if (!wanted) return "";
  const held = hosts.length ? `; on ${[...new Set(hosts)].join(", ")}, idle until a worker has to leave its host` : "";
  return `${hosts.length < wanted ? `${hosts.length} of ${wanted}` : wanted}${held}`;
}

/** `20 jobs, 4 at once`. */
export const extent = (array: JobArray): string => `${array.count === 1 ? "1 job" : `${array.count} jobs`}${array.atOnce ? `, ${array.atOnce} at once` : ""}`;

/** `4 running, 12 waiting, 4 done, 0 failed`. */
export const counts = (array: JobArray): string => `${array.running} running, ${array.waiting} waiting, ${array.done} done, ${array.failed} failed`;

const NO_LABELS = {};

/** A row without the words that a list doesn't show: of thousands of rows, most of what they take. */
export function lean(job: JobRow): JobRow {
  const { condition, headline } = job.summary ?? {};
  if (condition === undefined || !headline) return job;
  const summary = { condition, headline, health: "", happened: "", done: "", advice: "", command: "" };
  return { ...job, labels: NO_LABELS, waitReason: "", summary };
}

/** The array of an element as one row of a list; another job as it is. */
export function folded(job: JobRow): JobRow {
  const { array } = job;
  if (!array) return job;
  const state = array.running ? "RUNNING" : array.waiting ? "QUEUED" : array.failed ? "FAILED" : "SUCCEEDED";
  return {
    ...job, id: array.id, state: `JOB_STATE_${state}`, error: null, step: null, stepTotal: null, startTime: null, endTime: null, waitReason: "",
    summary: { condition: "", headline: `Array of ${extent(array)}: ${counts(array)}`, health: "", happened: "", done: "", advice: "", command: "" },
  };
}

/** One row for each array, where its first element in the list stood; other jobs as they are. */
export function foldedList(jobs: readonly JobRow[]): JobRow[] {
  const seen = new Set<string>();
  return jobs.flatMap((job) => {
    if (!job.array) return [job];
    if (seen.has(job.array.id)) return [];
    seen.add(job.array.id);
    return [folded(job)];
  });
}
