/** Hosts and their GPUs, as maps and tables show them. */
import type { Host } from "./types.ts";

/** `ready`, or what keeps it from taking work. */
export function hostState(host: Host): string {
  const state = host.state.toLowerCase();
  if (host.goingDown) return `${state}, going down`;
  if (host.draining) return `${state}, ${host.drained ? "drained" : "draining"}`;
  return host.cordoned ? `${state}, cordoned` : state;
}

/** How its state looks: good, waits or bad. */
export function hostLook(host: Host): "good" | "waits" | "bad" {
  if (host.state !== "READY" || host.refused) return host.state === "SUSPECT" ? "waits" : "bad";
  return host.cordoned || host.draining || host.goingDown || host.gpuProblem ? "waits" : "good";
}

export type GpuLook = "used" | "free" | "faulty" | "unavailable";

/** What a GPU is at present. */
export function gpuLook(host: Host, gpu: Host["gpus"][number]): GpuLook {
  if (gpu.problem) return "faulty";
  if (gpu.jobId) return "used";
  return hostLook(host) === "good" ? "free" : "unavailable";
}

/** Hosts by the value of a label, in order of names; all in one group without a label. */
export function grouped(hosts: readonly Host[], label: string): [string, Host[]][] {
  const found = new Map<string, Host[]>();
  const ordered = [...hosts].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  for (const host of ordered) {
    const key = label ? (host.labels[label] ?? "") : "";
    found.set(key, [...(found.get(key) ?? []), host]);
  }
  return [...found].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

/** Labels that some host has. */
export function labelsOf(hosts: readonly Host[]): string[] {
  return [...new Set(hosts.flatMap((host) => Object.keys(host.labels)))].sort();
}
