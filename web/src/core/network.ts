/** The levels of the network: which hosts are near each other, and what is free there. */
import { gpusFree, hostLook, labelOf } from "./hosts.ts";
import type { Host } from "./types/host.ts";

/** All hosts with the same labels from the outermost level to some other one. */
export interface Domain {
  level: string;
  /** The label of each level down to this one; empty where its hosts have none. */
  path: string[];
  hosts: number;
  /** Hosts that take work. */
  ready: number;
  gpus: number;
  free: number;
  /** Hosts that take work and have every GPU free. */
  whole: number;
  jobs: string[];
}

/** The domains of every level, each followed by those within it. */
export function domains(hosts: readonly Host[], levels: readonly string[]): Domain[] {
  const found = new Map<string, Domain>();
  for (const host of hosts) {
    const labels = levels.map((level) => labelOf(host, level));
    levels.forEach((level, depth) => {
      const path = labels.slice(0, depth + 1);
      const key = JSON.stringify(path);
      const domain = found.get(key) ?? { level, path, hosts: 0, ready: 0, gpus: 0, free: 0, whole: 0, jobs: [] };
      found.set(key, domain);
      const free = gpusFree(host);
      domain.hosts += 1;
      domain.ready += hostLook(host) === "good" ? 1 : 0;
      domain.gpus += host.gpus.length;
      domain.free += free;
      domain.whole += free > 0 && free === host.gpus.length ? 1 : 0;
      for (const job of host.jobIds) if (!domain.jobs.includes(job)) domain.jobs.push(job);
    });
  }
  return [...found.values()].sort((a, b) => order(a.path, b.path));
}

function order(a: readonly string[], b: readonly string[]): number {
  for (let depth = 0; depth < Math.max(a.length, b.length); depth++) {
    const [left, right] = [a[depth], b[depth]];
    if (left === undefined || right === undefined) return left === undefined ? -1 : 1;
    const found = left.localeCompare(right, "en", { numeric: true });
    if (found) return found;
  }
  return 0;
}
