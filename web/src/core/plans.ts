/** Schedules and templates, in the words of `holdfast schedule list` and `holdfast template list`. */
import { epoch, moment } from "./words.ts";

export interface JobFile {
  displayName: string;
  jobSpec: unknown;
}

export interface Schedule {
  project: string;
  name: string;
  owner: string;
  cron: string;
  timeZone: string;
  overlap: string;
  /** Seconds; null where the newest run that was missed is made up, however late. */
  startingDeadline: number | null;
  createTime: string | null;
  /** Empty while it is active. */
  pausedBy: string;
  nextRun: string | null;
  lastRun: string | null;
  runs: number;
  /** Of the last runs, the newest last. */
  jobIds: string[];
  leftOut: string;
  /** Only of one that is asked for. */
  job: JobFile | null;
}

export interface Template {
  project: string;
  name: string;
  owner: string;
  version: number;
  updatedBy: string;
  updateTime: string | null;
  job: JobFile | null;
}

/** A moment as clocks of a time zone show it; by this browser's where that doesn't know the zone. */
export function inZone(seconds: number, timeZone: string): string {
  try {
    const form = new Intl.DateTimeFormat("en-GB", {
      timeZone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short",
    });
    const part = Object.fromEntries(form.formatToParts(seconds * 1000).map(({ type, value }) => [type, value]));
    return `${part["year"]}-${part["month"]}-${part["day"]} ${part["hour"]}:${part["minute"]} ${part["timeZoneName"]}`;
  } catch {
    return moment(seconds);
  }
}

/** When a schedule is due next, or why it is not. */
export function due(of: Schedule): string {
  const next = epoch(of.nextRun);
  if (next !== null) return inZone(next, of.timeZone);
  return of.pausedBy ? `paused by ${of.pausedBy}` : "never again";
}

const OVERLAPS: Record<string, string> = {
  ALLOW: "starts beside it",
  REPLACE: "cancels that job and runs after its end",
};

/** What becomes of a run while the job of an earlier one has not ended. */
export function overlap(of: Schedule): string {
  return OVERLAPS[of.overlap] ?? "is left out";
}
