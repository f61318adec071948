/** A job's time as spans and marks on one axis, from what the API keeps for good: no event is read for it. */
import { answer, goesOn } from "./gang.ts";
import type { Goodput } from "./types/goodput.ts";
import type { Job } from "./types/job.ts";
import { ended, epoch, short, span, whole } from "./words.ts";

export type SpanKind = "waits" | "runs" | "lost" | "unheard";

export interface Span {
  from: number;
  to: number;
  kind: SpanKind;
  generation: number;
  title: string;
}

export type MarkKind = "exit" | "hang" | "relaunch" | "step" | "save" | "end";

export interface Mark {
  at: number;
  kind: MarkKind;
  title: string;
}

export interface Strip {
  from: number;
  to: number;
  spans: Span[];
  marks: Mark[];
  /** Since when each generation ran, and until when. */
  generations: { number: number; from: number; to: number }[];
}

/** Ranges up to now that a timeline offers, in seconds. */
export const RANGES: readonly (readonly [string, number])[] = [["15m", 900], ["1h", 3600], ["6h", 21_600], ["1d", 86_400]];

const WELL_OR_BY_US = new Set(["COMPLETED", "STOPPED", "HANG_KILLED"]);
/** Ends of a generation that were exits of its ranks. */
const BY_EXIT = new Set(["NONZERO_EXIT", "SIGNALED", "OUT_OF_MEMORY", "CANNOT_START", "LOST_SHIM_DIED", "LOST_REBOOT", "NOT_STARTED", "LOST_RECORD"]);

/** The strip from the job's submission to its end, or to `now`; `silent`: since when a host of it is not heard. */
export function strip(job: Job, now: number, silent: number | null = null): Strip {
  const from = epoch(job.createTime) ?? now;
  const to = Math.max(epoch(job.endTime) ?? now, from + 1);
  const start = epoch(job.startTime);
  const spans: Span[] = [];
  const marks: Mark[] = [];
  const generations: Strip["generations"] = [];
  const add = (kind: SpanKind, a: number, b: number, generation: number, title: string): void => {
    const [first, last] = [Math.max(a, from), Math.min(b, to)];
    if (last > first) spans.push({ from: first, to: last, kind, generation, title });
  };

  let at = start === null ? to : start;
  // The reason is of this moment: of a wait that is over it says nothing.
  const why = start === null && job.waitReason ? `: ${job.waitReason}` : "";
  add("waits", from, at, 0, `waited ${span(at - from)}${why}`);
  let generation = 1;
  let since = at;
  const told = new Set(job.exitGroups.map(({ first }) => first.generation));
  for (const each of job.recoveries) {
    const began = (epoch(each.startedAt) ?? at) - (each.phases.detect ?? 0) - (each.phases.diagnose ?? 0);
    const over = epoch(each.endedAt) ?? to;
    const before = Math.max(at, Math.min(began, to));
    add("runs", at, before, generation, `generation ${generation} ran ${span(before - at)}`);
    if (before > since) generations.push({ number: generation, from: since, to: before });
    const lost = each.lostSeconds === null ? "going on" : `${short(each.lostSeconds)} lost`;
    const cause = [each.endReason, each.endRelatedTask].filter(Boolean).join(": ");
    add("lost", before, over, each.generation, `${cause}: ${answer(each)}, ${lost}`);
    // The exits of generations that are long over are not read with the job.
    if (BY_EXIT.has(each.endReason) && !told.has(generation)) marks.push({ at: before, kind: "exit", title: cause });
    if (each.endedAt !== null) marks.push({ at: Math.min(over, to), kind: "relaunch", title: `generation ${each.generation} launched` });
    at = Math.max(at, over);
    since = at;
    generation = each.generation;
  }
  if (start !== null && at < to) {
    const waits = job.state === "JOB_STATE_QUEUED" || job.state === "JOB_STATE_PAUSED";
    // What waits now ran until its ranks had ended.
    const ends = job.exitGroups.filter(({ first }) => first.generation === generation).map(({ lastEndTime }) => epoch(lastEndTime) ?? at);
    const until = waits ? Math.min(to, Math.max(at, ...ends)) : to;
    add("runs", at, until, generation, `generation ${generation} ran ${span(until - at)}`);
    add("waits", until, to, generation, job.waitReason || (job.state === "JOB_STATE_PAUSED" ? "paused" : "waits"));
    if (silent !== null && !waits) add("unheard", Math.max(silent, at), to, generation, "nothing is heard from one of its hosts; whether its ranks run on is not known");
    if (until > at) generations.push({ number: generation, from: since, to: until });
  }

  for (const hang of job.hangs) {
    const next = generations.find((each) => each.number > hang.generation)?.from ?? to;
    const left = hang.outcome === "" || hang.outcome === "WOULD_RESTART" || hang.outcome === "WITHHELD";
    const [first, last] = [epoch(hang.since), goesOn(job, hang) ? to : left ? next : epoch(hang.judgedAt)];
    // One that was acted on is part of its recovery.
    if (first !== null && last !== null && hang.outcome !== "RESTARTED") {
      add("lost", first, last, hang.generation, `hang ${hang.number}: ${hang.sentence}`);
    }
    const noticed = epoch(hang.noticedAt);
    if (noticed !== null) marks.push({ at: noticed, kind: "hang", title: `hang ${hang.number} noticed: ${hang.sentence}` });
  }
  marks.push(...failures(job));
  if (ended(job.state)) marks.push({ at: to, kind: "end", title: job.error?.message || "ended" });
  return { from, to, spans, marks: marks.sort((a, b) => a.at - b.at), generations };
}

/** A mark for each save that was complete. */
export function saveMarks(saves: Goodput["saves"]): Mark[] {
  return saves.flatMap(({ time, step }) => {
    const at = epoch(time);
    return at === null ? [] : [{ at, kind: "save" as const, title: step === null ? "a checkpoint was complete" : `step ${whole(step)} was saved` }];
  });
}

/** A mark for the first rank of each generation that failed by itself, with how many followed it. */
function failures(job: Job): Mark[] {
  const found = new Map<number, { at: number; rank: number; reason: string; others: number }>();
  for (const { first, count } of job.exitGroups) {
    const at = epoch(first.endTime);
    if (at === null || WELL_OR_BY_US.has(first.reason)) continue;
    const held = found.get(first.generation);
    // Of a generation, the group whose first rank ended first comes first.
    if (!held) found.set(first.generation, { at, rank: first.rank, reason: first.reason, others: count - 1 });
    else held.others += count;
  }
  return [...found.values()].map(({ at, rank, reason, others }) => ({
    at,
    kind: "exit" as const,
    title: `rank ${rank}: ${reason}${others ? `, and ${others} more` : ""}`,
  }));
}

const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** Seconds that clocks here are ahead of UTC at a moment. */
export const ahead = (moment: number): number => -60 * new Date(moment * 1000).getTimezoneOffset();

/** Round moments within a range, at most `most` of them, by clocks that are `offset` ahead of UTC. Days begin at midnight in summer and in winter. */
export function ticks(from: number, to: number, most: number, offset: (moment: number) => number = () => 0): number[] {
  const step = TICKS.find((each) => (to - from) / each <= most) ?? 2592000;
  const found: number[] = [];
  const first = offset(from);
  for (let at = Math.ceil((from + first) / step) * step - first; ; at += step) {
    const tick = step < 86_400 ? at : at + first - offset(at);
    if (tick > to) return found;
    if (tick >= from) found.push(tick);
  }
}

/** A part of the time that is drawn on a width in pixels. */
export interface Axis {
  from: number;
  to: number;
  width: number;
}

/** Upright lines at moments, as one path: of thousands each would be an element in every chart. One a pixel is enough. */
export function uprightPath(moments: readonly number[], { from, to, width }: Axis, top: number, bottom: number): string {
  const seen = new Set<number>();
  for (const at of moments) if (at > from && at < to) seen.add(Math.round((width * (at - from)) / (to - from)));
  return [...seen].map((x) => `M${x} ${top}V${bottom}`).join("");
}

/** Times as bars of a height, a pixel wide at least, as one path; those that touch are one. */
export function barPath(times: readonly { from: number; to: number }[], { from, to, width }: Axis, height: number): string {
  const x = (at: number): number => (width * (Math.min(Math.max(at, from), to) - from)) / (to - from);
  let path = "";
  let [begin, end] = [0, -1];
  const close = (): void => {
    if (end > begin) path += `M${begin.toFixed(1)} 0H${end.toFixed(1)}V${height}H${begin.toFixed(1)}Z`;
  };
  for (const each of [...times].sort((a, b) => a.from - b.from)) {
    if (each.to <= from || each.from >= to) continue;
    const [first, last] = [x(each.from), Math.max(x(each.to), x(each.from) + 1)];
    if (first > end) (close(), (begin = first));
    end = Math.max(end, last);
  }
  close();
  return path;
}

/** Marks of one kind that would be drawn over each other, as the first of them, with how many there are. */
export function apart(marks: readonly Mark[], { from, to, width }: Axis, pixels: number): Mark[] {
  const room = (pixels * (to - from)) / width;
  const newest = new Map<MarkKind, { mark: Mark; others: number }>();
  const found: { mark: Mark; others: number }[] = [];
  for (const mark of marks) {
    const before = newest.get(mark.kind);
    if (before && mark.at - before.mark.at < room) before.others += 1;
    else {
      const own = { mark, others: 0 };
      newest.set(mark.kind, own);
      found.push(own);
    }
  }
  return found.map(({ mark, others }) => (others ? { ...mark, title: `${mark.title}, and ${others} more within ${span(room)}; drag to look closer` } : mark));
}
