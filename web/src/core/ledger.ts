/** The goodput ledger's categories in groups of one colour each: those of the command line. */
import type { Goodput, GoodputLine, GoodputRow } from "./types/goodput.ts";

export const GROUPS = {
  trained: ["train"],
  "not saved yet": ["train_unsaved"],
  "saving, evaluating": ["save", "evaluate"],
  starting: ["prepare", "install", "launch", "warm_up"],
  lost: ["lost", "stall", "detect", "diagnose", "stop", "back_off", "held", "relaunch"],
  "ending, idle": ["wind_down", "pause", "spare"],
  unknown: ["ran", "unseen"],
} as const satisfies Record<string, readonly string[]>;

export type Group = keyof typeof GROUPS;

/** A class name for a group. */
export function groupClass(group: Group): string {
  return `g-${group.replace(/[ ,]+/g, "-")}`;
}

/** What a group is called in a bar; where saves aren't known, what is not saved yet isn't, either. */
export function groupWords(group: Group, level?: string): string {
  return group === "not saved yet" && (level === "B" || level === "C") ? "trained, no save known" : group;
}

export const LEVELS: Record<string, string> = {
  A: "steps and saves are known",
  B: "steps are known, saves are not: what the next start resumed from counts as saved",
  C: "no steps are known, only that there was progress",
  D: "nothing is known of its progress, so none of it is called productive",
};

const OWN = new Set(["FIRST_START", "WORK", "FINISHED"]);
const HOUR_MS = 3_600_000;

/** The group that a category is shown in: a start after an interruption is part of the loss. */
export function groupOf(category: string, cause: string): Group {
  if ((GROUPS.starting as readonly string[]).includes(category) && !OWN.has(cause)) return "lost";
  for (const [name, held] of Object.entries(GROUPS)) {
    if ((held as readonly string[]).includes(category)) return name as Group;
  }
  return "unknown";
}

/** Milliseconds by group, in the order of `GROUPS`. */
export function sums(lines: readonly GoodputLine[]): [Group, number][] {
  const found = new Map<Group, number>(Object.keys(GROUPS).map((name) => [name as Group, 0]));
  for (const line of lines) {
    const group = groupOf(line.category, line.cause);
    found.set(group, (found.get(group) ?? 0) + line.ms);
  }
  return [...found];
}

/** The largest losses by cause, with their share in all time. */
export function losses(found: Goodput, most = 3): { cause: string; ms: number; share: number }[] {
  const byCause = new Map<string, number>();
  for (const line of found.lines) {
    if (groupOf(line.category, line.cause) === "lost") {
      byCause.set(line.cause, (byCause.get(line.cause) ?? 0) + line.ms);
    }
  }
  return [...byCause]
    .sort((a, b) => b[1] - a[1])
    .slice(0, most)
    .map(([cause, ms]) => ({ cause, ms, share: found.totalMs ? ms / found.totalMs : 0 }));
}

export const hours = (ms: number, digits = 2): string =>
  (ms / HOUR_MS).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

export interface SumRow {
  name: string;
  ranks: boolean;
  totalMs: number;
  /** Null where no progress is known. */
  goodput: number | null;
  groups: [Group, number][];
  lines: GoodputLine[];
}

export const BY = ["project", "owner", "host", "model"] as const;
export type By = (typeof BY)[number];

/** Rows of all jobs by name and unit, the largest first and ranks last. */
export function summary(rows: readonly GoodputRow[], by: By): SumRow[] {
  const byName = new Map<string, { name: string; ranks: boolean; lines: GoodputLine[] }>();
  for (const row of rows) {
    const name = row[by] ?? "";
    const key = JSON.stringify([name, row.unit]);
    const held = byName.get(key) ?? { name, ranks: row.unit === "rank", lines: [] };
    // A start that the job itself does not pay for is part of an interruption.
    held.lines.push({ ...row, cause: row.payer === "job" ? "WORK" : row.payer });
    byName.set(key, held);
  }
  const found = [...byName.values()].map(({ name, ranks, lines }) => {
    const groups = sums(lines);
    const of = (group: Group): number => groups.find(([each]) => each === group)?.[1] ?? 0;
    const totalMs = groups.reduce((sum, [, ms]) => sum + ms, 0);
    const work = of("trained") + of("not saved yet");
    const known = totalMs - of("unknown");
    return { name, ranks, totalMs, goodput: known && work ? work / totalMs : null, groups, lines };
  });
  return found.sort((a, b) => Number(a.ranks) - Number(b.ranks) || b.totalMs - a.totalMs);
}
