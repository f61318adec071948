/** Stacks of ranks as groups of those that are at the same place, the smallest first: the odd one is what one looks for. */
import type { RankName } from "./types/job.ts";
import type { WorkerEvidence } from "./types/records.ts";
import { ranges } from "./words.ts";

export interface StackGroup {
  key: string;
  place: string;
  /** For their peers, as far as the place tells. */
  waits: boolean;
  /** Whether all stood still between two looks: `same`, `moving`, `unknown` or `some`. */
  moving: string;
  ranks: RankName[];
  frames: { function: string; place: string }[];
  framesCut: number;
}

export interface Stacks {
  groups: StackGroup[];
  /** What each flight recorder says, ranks that say the same together. */
  collectives: { ranks: number[]; words: string }[];
  /** Workers and ranks of which there is no stack, and why. */
  problems: string[];
}

/** The groups of all workers. */
export function stacks(workers: readonly WorkerEvidence[]): Stacks {
  const groups = new Map<string, StackGroup>();
  const collectives = new Map<string, number[]>();
  const problems: string[] = [];
  for (const found of workers) {
    if (found.problem) problems.push(`${found.worker}: ${found.problem}`);
    for (const each of found.stacks ?? []) {
      if (each.collective) collectives.set(each.collective, [...(collectives.get(each.collective) ?? []), each.rank]);
      if (!each.group) {
        problems.push(`${found.worker} rank ${each.rank}: ${each.problem || "unknown"}`);
        continue;
      }
      const group = groups.get(each.group) ?? {
        key: each.group, place: each.place, waits: each.waits, moving: each.moving, ranks: [], ...framesOf(found, each.rank),
      };
      groups.set(each.group, group);
      group.ranks.push({ worker: found.worker, rank: each.rank });
      if (group.moving !== each.moving) group.moving = "some";
    }
  }
  const least = (group: StackGroup): number => Math.min(...group.ranks.map((each) => each.rank));
  return {
    groups: [...groups.values()].sort((a, b) => a.ranks.length - b.ranks.length || least(a) - least(b)),
    collectives: [...collectives].map(([words, ranks]) => ({ ranks, words })).sort((a, b) => a.ranks.length - b.ranks.length),
    problems,
  };
}

function framesOf(found: WorkerEvidence, rank: number): Pick<StackGroup, "frames" | "framesCut"> {
  const looks = found.evidence?.ranks?.find((each) => (each.rank ?? 0) === rank)?.process?.looks ?? [];
  const mains = looks.flatMap((look) => (look.python?.threads ?? []).filter((thread) => thread.main && thread.frames?.length));
  const main = mains.at(-1);
  const frames = (main?.frames ?? []).flatMap((number) => {
    const [name, file, line] = found.evidence?.frames[number] ?? [];
    return name === undefined || file === undefined ? [] : [{ function: name, place: line ? `${shortened(file)}:${line}` : shortened(file) }];
  });
  return { frames, framesCut: main?.framesCut ?? 0 };
}

/** The file, without where a library is installed. */
function shortened(file: string): string {
  const installed = Math.max(...["/site-packages/", "/dist-packages/"].map((marker) => (file.includes(marker) ? file.lastIndexOf(marker) + marker.length : 0)));
  const path = file.slice(installed);
  const at = path.indexOf("/lib/python3");
  return at < 0 ? path : path.slice(path.indexOf("/", at + 5) + 1 || at);
}

const MOVING: Record<string, string> = { same: "the same in both looks", moving: "moving", unknown: "seen once", some: "some moving, some the same" };

/** `rank 3 is in data_loader.py:26 queue.get`, `63 ranks wait in all_reduce`; and whether they moved. */
export function groupWords(group: StackGroup): string {
  const { ranks, waits, place } = group;
  const many = ranks.length > 1;
  const who = ranks.length > 2 ? `${ranks.length} ranks` : `rank ${ranks.map((each) => each.rank).join(" and ")}`;
  const verb = waits ? (many ? "wait in" : "waits in") : many ? "are in" : "is in";
  return `${who} ${verb} ${place} (${MOVING[group.moving] ?? group.moving})`;
}

export const rankWords = (ranks: readonly number[]): string => `rank${ranks.length === 1 ? "" : "s"} ${ranges(ranks)}`;
