/** Hosts and their GPUs, as maps and tables show them. */
import type { Gpu, Host } from "./types/host.ts";
import { clock, epoch, shellWord } from "./words.ts";

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

export type GpuLook = "used" | "free" | "reserved" | "faulty" | "unavailable";

/** What a GPU is at present. */
export function gpuLook(gpu: Gpu): GpuLook {
  if (gpu.problem || gpu.state === "UNHEALTHY") return "faulty";
  if (gpu.jobId) return "used";
  return gpu.state === "FREE" ? "free" : gpu.state === "RESERVED" ? "reserved" : "unavailable";
}

/** GPUs that a job may have now. */
export function gpusFree(host: Host): number {
  return host.gpus.filter((gpu) => gpu.state === "FREE").length;
}

/** Hosts by the value of a label, in order of names; all in one group without a label. */
export function grouped(hosts: readonly Host[], label: string): [string, Host[]][] {
  const found = new Map<string, Host[]>();
  const ordered = [...hosts].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  for (const host of ordered) {
    const key = label ? labelOf(host, label) : "";
    found.set(key, [...(found.get(key) ?? []), host]);
  }
  return [...found].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

/** The value of a host's label, whatever its name; empty where it has none. */
export const labelOf = ({ labels }: Host, label: string): string => (Object.hasOwn(labels, label) ? (labels[label] ?? "") : "");

/** Labels that some host has. */
export function labelsOf(hosts: readonly Host[]): string[] {
  return [...new Set(hosts.flatMap((host) => Object.keys(host.labels)))].sort();
}

/** Why a host is not as it should be, and what is planned for it, as `holdfast host list` says; empty where all is well. */
export function remark(host: Host, now: number): string {
  const told = (words: string): boolean => !host.cordonReason.includes(words);
  const reason = host.maintenance?.begun && host.cordonReason === host.maintenance.reason ? "" : host.cordonReason;
  return [
    host.refused,
    silence(host, now),
    host.inDoubt ? "has yet to say what it runs, after a restore" : "",
    planned(host, now),
    reason,
    host.gpuProblem,
    ...host.gpus.filter((gpu) => gpu.problem).map((gpu) => `GPU ${gpu.index}: ${gpu.problem}`).filter(told),
    ...host.failedChecks.map((check) => `${check.check}: ${check.saw}`).filter(told),
    unknown(host),
    host.spare ? `a spare (spares.${host.spare})` : "",
  ].filter(Boolean).join("; ");
}

function silence(host: Host, now: number): string {
  const [down, stopped, silent] = [epoch(host.goingDownSince), epoch(host.agentStoppedAt), epoch(host.silentSince)];
  if (down !== null && host.state !== "READY") return `shut down at ${clock(down, now)}`;
  if (stopped !== null) return `its agent was stopped at ${clock(stopped, now)}`;
  return silent === null ? "" : `silent since ${clock(silent, now)}`;
}

function planned({ maintenance: plan }: Host, now: number): string {
  if (!plan) return "";
  const end = epoch(plan.end);
  const begin = plan.begun ? "under way" : `from ${clock(epoch(plan.start) ?? 0, now)}`;
  return `maintenance ${begin}${end === null ? " until it is uncordoned" : ` to ${clock(end, now)}`}, by ${plan.by}${plan.reason && `: ${plan.reason}`}`;
}

function unknown({ name, strangeWork }: Host): string {
  const jobs = [...new Set(strangeWork.map((each) => each.jobId))];
  return jobs.length ? `runs unknown work: ${jobs.join(", ")} (stop it with: holdfast host stop-orphans ${shellWord(name)} ${shellWord(jobs[0] ?? "")})` : "";
}
