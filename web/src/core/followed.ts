/**
 * Answers that this browser's tabs follow: each was asked for once, and is made of what it was and of what is told of it.
 * No tab knows of the others' but that they are followed: the tab that reads the stream asks for all of them.
 */

/** What is told of an answer: all of it, or a list of the entries that it had, as [first, last], and new ones. */
export interface Told {
  path: string;
  /** The answer that it changes; empty for none. */
  from?: string;
  /** The answer that it makes; missing where it has to be asked for again. */
  tag?: string;
  answer?: unknown;
  list?: string;
  nextPageToken?: string;
  parts?: unknown[];
}

type Reader = (data: unknown) => void;

interface Held {
  tag: string;
  data: unknown;
  readers: Set<Reader>;
}

const held = new Map<string, Held>();
/** Paths that are told of on the stream that is read now, by this tab or another one. */
let carried = new Set<string>();
let changed: () => void = () => undefined;

/** Hear that this tab follows other answers than before. */
export function onFollowed(heard: () => void): void {
  changed = heard;
}

/** The tag of each answer that this tab follows, by path. */
export const tags = (): Record<string, string> => Object.fromEntries([...held].map(([path, { tag }]) => [path, tag]));

/** Whether what changes of an answer is told. */
export const carries = (path: string): boolean => carried.has(path) && held.has(path);

/** Take note of what the stream that is read now tells of. */
export function carry(paths: string[]): void {
  carried = new Set(paths);
}

/** Be told of an answer that was asked for, whole, whenever it changes; null where it has to be asked for again. */
export function follow<T>(path: string, tag: string, data: T, reader: (data: T | null) => void): () => void {
  const mine = reader as Reader;
  const known = held.get(path);
  if (known) {
    Object.assign(known, { tag, data });
    known.readers.add(mine);
  } else held.set(path, { tag, data, readers: new Set([mine]) });
  if (!known) changed();
  return () => {
    const now = held.get(path);
    if (!now?.readers.delete(mine) || now.readers.size) return;
    held.delete(path);
    changed();
  };
}

/** Take in what is told. */
export function take(told: Told): void {
  const known = held.get(told.path);
  if (!known || told.tag === known.tag) return;
  const whole = told.tag === undefined || (told.from !== "" && told.from !== known.tag) ? null : made(known.data, told);
  if (told.tag === undefined) carried.delete(told.path);
  if (whole !== null) Object.assign(known, { tag: told.tag, data: whole });
  for (const reader of [...known.readers]) reader(whole);
}

/** The answer that is told of, with the entries of the one before. */
function made(before: unknown, told: Told): unknown {
  if (!told.list) return told.answer;
  const old = (before as Record<string, unknown[]>)[told.list] ?? [];
  const isRange = (part: unknown): part is [number, number] => Array.isArray(part);
  const entries = (told.parts ?? []).flatMap((part) => (isRange(part) ? old.slice(part[0], part[1] + 1) : [part]));
  return { [told.list]: entries, nextPageToken: told.nextPageToken };
}
