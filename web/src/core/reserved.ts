/** Reservations of hosts, and quotas, in the words of `holdfast reservation` and `holdfast quota`. */
import { clock, count, epoch, shellWord } from "./words.ts";

export interface Reservation {
  name: string;
  /** Empty where the reader may not see it, as are `reason` and `createdBy`. */
  project: string;
  /** Only jobs of this user; empty for all of the project's, and where the reader may not see it. */
  user: string;
  start: string | null;
  end: string | null;
  hosts: string[];
  labels: Record<string, string>;
  /** Conditions on labels. */
  match: string;
  count: number;
  gpus: number;
  gpuType: string;
  reason: string;
  createdBy: string;
  /** The hosts that it has at present. */
  chosenHosts: string[];
  lack: string;
  jobsOfOthers: number;
  /** Whether no user of that name has a role here, or ever signed in. */
  unknownUser: boolean;
}

/** Limits that count; null is no limit. */
export interface Limits {
  gpus: number | null;
  runningJobs: number | null;
  waitingJobs: number | null;
  maxPriority: number | null;
}

/** Of a project or a user; `*` stands for each without limits of its own. */
export interface Quota {
  project: string | null;
  user: string | null;
  limits: Limits;
  /** The part that was set by command, where -1 is no limit. */
  byCommand: Limits | null;
  gpus: number;
  runningJobs: number;
  waitingJobs: number;
  unknownUser: boolean;
}

/** Whether it holds now. */
export function begun(of: Reservation, now: number): boolean {
  return (epoch(of.start) ?? 0) <= now;
}

/** When it begins and ends, as `holdfast reservation list` has it. */
export function times(of: Reservation, now: number): [string, string] {
  return [begun(of, now) ? "under way" : clock(epoch(of.start) ?? 0, now), clock(epoch(of.end) ?? 0, now)];
}

/** What was asked for: `64 H200 GPUs rack=a`. */
export function asked(of: Reservation): string {
  const which = [...of.hosts, ...Object.entries(of.labels).map(([key, value]) => `${key}=${value}`).sort(), ...(of.match ? [of.match] : [])].join(", ");
  const model = of.gpuType && ` ${of.gpuType}`;
  const what = of.gpus ? `${of.gpus}${model} GPUs` : of.count ? `${of.count} hosts` : "hosts";
  return `${what}${model && !of.gpus ? ` with${model} GPUs` : ""} ${which}`.trimEnd();
}

/** `vision`, `user/ann`, `user/ann in vision`; empty where the reader may not see it. */
export function whose(of: Reservation): string {
  return [of.user && `user/${of.user}`, of.project].filter(Boolean).join(" in ");
}

/** Whom it is for, with a word on a user whom nobody knows. */
export function forWhom(of: Reservation): string {
  return whose(of) + (of.unknownUser ? " (no such user)" : "");
}

/** What it keeps off, and what may be in its way. */
export function keepsOff(of: Reservation, now: number): string {
  const others = of.user ? `but those of ${whose(of)}` : of.project ? `of projects other than ${of.project}` : "of other projects than its own";
  const off = begun(of, now) ? `no job ${others} starts there, but SPOT jobs` : `no job ${others} starts there that is expected to run beyond the beginning, but SPOT jobs`;
  return of.jobsOfOthers ? `${off}; ${inTheWay(of)} may run into it, and none is stopped for it` : off;
}

/** `1 job of another project`; empty where none is in its way. */
export function inTheWay(of: Reservation): string {
  if (!of.jobsOfOthers) return "";
  const kind = of.user ? "user" : "project";
  return of.jobsOfOthers === 1 ? `1 job of another ${kind}` : `${of.jobsOfOthers} jobs of other ${kind}s`;
}

/** What a host's page says of the reservations that have it: `for vision until 22:00 (conference: demo)`. */
export function ofHost(reservations: readonly Reservation[], host: string, now: number): string[] {
  return reservations.filter((each) => each.chosenHosts.includes(host)).map((each) => {
    const [start, end] = times(each, now);
    const when = begun(each, now) ? `until ${end}` : `from ${start} until ${end}`;
    return `for ${forWhom(each) || "a project that you may not see"} ${when} (${each.name}${each.reason && `: ${each.reason}`}): ${keepsOff(each, now)}`;
  });
}

export const deletes = (name: string): string => `holdfast reservation delete ${shellWord(name)}`;

/** `project/vision`, `user/ann`, `user/bbo (no such user)`. */
export function holder(of: Quota): string {
  return of.user === null ? `project/${of.project ?? ""}` : `user/${of.user}${of.unknownUser ? " (no such user)" : ""}`;
}

const TITLES: readonly (readonly [keyof Limits, string])[] = [["gpus", "GPUs"], ["runningJobs", "running"], ["waitingJobs", "waiting"], ["maxPriority", "priority"]];

/** The limits that were set by command, by name; those of controller.toml are the others. */
export function setByCommand(of: Quota): string {
  return TITLES.filter(([key]) => (of.byCommand?.[key] ?? null) !== null).map(([, title]) => title).join(", ");
}

/** `4 hosts`; `no host` where it has none at present. */
export function has(of: Reservation): string {
  return of.chosenHosts.length ? count(of.chosenHosts.length, "host") : "no host";
}
