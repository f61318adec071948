import type { Check, Gpu, Host, Reliability } from "../src/core/types/host.ts";
import { at } from "./job.ts";

export function check(set: Partial<Check> = {}): Check {
  return {
    check: "ib.port/mlx5_3:1", status: "ERROR", saw: "the port is down", why: "Ranks there can't talk.", fix: ["ibstat mlx5_3"],
    since: at(0), keepsWorkAway: true, health: "CORDON", waived: "UNSPECIFIED", ...set,
  };
}

export function gpu(set: Partial<Gpu> = {}): Gpu {
  return { uuid: "GPU-1", index: 1, model: "H100", memoryBytes: 80 * 2 ** 30, problem: "", jobId: "", state: "FREE", faults: [], ...set };
}

export function reliability(set: Partial<Reliability> = {}): Reliability {
  return {
    since: at(0), inService: 86_400 * 36, failures: 0, kinds: {}, mtbf: null, mtbfLow: 86_400 * 5, mtbfHigh: null, repairs: 0,
    mttr: null, mttrLow: null, mttrHigh: null, ratio: 0, ratioLow: 0, surprise: 0, lemon: false, ...set,
  };
}

export function host(set: Partial<Host> = {}): Host {
  return {
    name: "gpu-07", state: "READY", cordoned: false, cordonReason: "", cordonedBy: "", cordonedSince: null, maintenance: null,
    failedChecks: [], strangeWork: [], inDoubt: false, spare: "", draining: false, drained: false, goingDown: false, goingDownSince: null,
    agentStoppedAt: null, silentSince: null, lostAt: null, labels: {}, address: "10.0.0.7", agentVersion: "0.1", refused: "",
    lastSeen: at(0), cpuCount: 64, cpuReserved: 0, memoryBytes: 1, memoryReservedBytes: 0, workers: 0, maxWorkers: 8,
    gpuProblem: "", gpus: [], jobIds: [], ...set,
  };
}
