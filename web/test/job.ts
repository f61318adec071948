import type { Exit, ExitsAlike, Hang, Job, Recovery, Worker } from "../src/core/types/job.ts";

/** A job of two workers with two ranks each, as the API sends it to its page; `at` seconds after its submission. */
export const at = (seconds: number): string => new Date((1_700_000_000 + seconds) * 1000).toISOString();
export const T0 = 1_700_000_000;

export function exit(set: Partial<Exit>): Exit {
  return {
    attempt: 1, generation: 1, rank: 0, exitCode: 0, signal: null, coreDumped: false, reason: "COMPLETED",
    message: "exited with code 0", endTime: at(100), lateExit: null, raised: null, ...set,
  };
}

/** Ranks of a generation that ended alike; the first of them as `set` says. */
export function alike(ranks: string, set: Partial<Exit>, count = 1, lastEndTime = set.endTime ?? at(100)): ExitsAlike {
  return { first: exit(set), ranks, count, lastEndTime };
}

export const workers = (): Worker[] => [0, 1].map((pool) => ({
  name: `workerpool${pool}-0`, host: `host-${pool}`, state: "RUNNING", shimPid: 1, gpus: [],
  ranks: [0, 1].map((local) => ({ rank: 2 * pool + local, localRank: local, pid: 100 + 2 * pool + local })),
}));

export function recovery(set: Partial<Recovery>): Recovery {
  return {
    attempt: 1, generation: 2, startedAt: at(40), endedAt: at(50), startType: "RESTARTED", endReason: "HANG",
    endRelatedTask: "workerpool1-0 rank 3", endRecover: "PROC_RESTART", lostSeconds: 20,
    phases: { detect: 8, diagnose: 2, stop: 4, start: 6, catchUp: null }, related: null, ...set,
  };
}

export function hang(set: Partial<Hang>): Hang {
  return {
    number: 1, generation: 1, since: at(30), noticedAt: at(38), diagnosedAt: null, judgedAt: at(40), rule: "SILENCE",
    sentence: "nothing new was printed for 8 s", suspects: [], suspectRanks: [], stacks: "", outcome: "RESTARTED",
    note: "", step: null, ...set,
  };
}

export function job(set: Partial<Job> = {}): Job {
  return {
    id: "train-x7k2mq", displayName: "train", labels: {}, project: "default", owner: "ann", state: "JOB_STATE_RUNNING",
    createTime: at(0), startTime: at(10), endTime: null, error: null, attempt: 1, generation: 1, waitReason: "",
    step: null, stepTotal: null, phase: "", savedStep: null, heldUntil: null, health: "", annotations: {}, account: "",
    jobSpec: { workerPoolSpecs: [0, 1].map(() => ({ replicaCount: 1, processesPerWorker: 2, machineSpec: { acceleratorCount: 2 } })) },
    exitGroups: [], recoveries: [], hangs: [], archiveProblems: {}, ...set,
  };
}
