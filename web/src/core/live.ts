/**
 * One stream of changes for all tabs of a browser, which has six connections to the controller in all: the tab that
 * holds the lock reads it and tells the others. It brings what has changed of the answers that any tab follows. A hidden
 * tab lets go after a while.
 */
import { ApiError, lines } from "./api.ts";
import { carry, onFollowed, tags, take } from "./followed.ts";
import type { Told } from "./followed.ts";
import { pause } from "./pause.ts";
import { serverEvents } from "./stream.ts";
import type { Changes } from "./types/cluster.ts";

/** `lost`: nothing is known of what happened meanwhile, also of what is followed. */
export type Heard = Changes & { lost?: boolean };
type Listener = (changes: Heard) => void;

const HIDDEN_MS = 60_000;
const POLL_MS = 10_000;
const SETTLE_MS = 100;
const EVERYTHING: Heard = { cursor: 0, jobs: [], hosts: [], all: true, lost: true };
const NAME = "holdfast-live";

/** What tabs tell each other: those that read what the stream brings, the others what they follow. */
interface Message {
  changes?: Heard;
  told?: Told;
  carried?: string[];
  /** The tags of the answers that a tab follows. */
  wanted?: Record<string, string>;
  tab?: string;
  /** Who follows what is to say so. */
  roll?: boolean;
}

const TAB = Math.random().toString(36).slice(2);
const MOST = 32;
const listeners = new Set<Listener>();
let cursor = 0;
let running: AbortController | null = null;
let hiding: ReturnType<typeof setTimeout> | undefined;
let others: BroadcastChannel | null = null;
let away = false;
/** By tab: what the others follow, as far as this one reads the stream. */
const wanted = new Map<string, Record<string, string>>();
/** Ends the stream that is read, to read one that tells of more or less. */
let reopen: () => void = () => undefined;

/** Hear what changed; the stream is open while anyone listens and the tab is seen. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  open();
  return () => {
    listeners.delete(listener);
    if (!listeners.size) close();
  };
}

function open(): void {
  if (running || !listeners.size || document.hidden) return;
  running = new AbortController();
  const { signal } = running;
  others = new BroadcastChannel(NAME);
  others.onmessage = (event: MessageEvent<Message>): void => {
    const { changes, told, carried, wanted: theirs, tab, roll } = event.data;
    if (changes) {
      cursor = changes.cursor || cursor;
      tell(changes);
    }
    if (told) take(told);
    if (carried) carry(carried);
    if (roll) say({ wanted: tags(), tab: TAB });
    if (theirs && tab) {
      wanted.set(tab, theirs);
      reopen();
    }
  };
  say({ wanted: tags(), tab: TAB });
  // What another tab was told while this one did not listen is not known here.
  if (away) tell(EVERYTHING);
  away = false;
  navigator.locks.request(NAME, { signal }, () => follow(signal)).catch(() => undefined);
}

function say(message: Message): void {
  others?.postMessage(message);
}

onFollowed(() => {
  say({ wanted: tags(), tab: TAB });
  reopen();
});

/** The answers that tabs follow, this one's first, each with the tag of the one that it has. */
function following(): Map<string, string> {
  const all = new Map(Object.entries(tags()));
  for (const theirs of wanted.values()) for (const [path, tag] of Object.entries(theirs)) if (!all.has(path)) all.set(path, tag);
  return new Map([...all].slice(0, MOST));
}

function close(): void {
  say({ wanted: {}, tab: TAB });
  running?.abort();
  running = null;
  others?.close();
  others = null;
  away = true;
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(close, HIDDEN_MS);
  else open();
});

/** What follows a cut is fetched whole: nothing is known of the time between. */
async function follow(signal: AbortSignal): Promise<void> {
  let failures = 0;
  const tellAll = (changes: Heard): void => {
    tell(changes);
    if (!signal.aborted) say({ changes });
  };
  wanted.clear();
  say({ roll: true });
  await pause(SETTLE_MS, signal);
  while (!signal.aborted) {
    const read = new AbortController();
    const end = (): void => read.abort();
    signal.addEventListener("abort", end);
    const paths = following();
    let settling: ReturnType<typeof setTimeout> | undefined;
    reopen = () => {
      clearTimeout(settling);
      settling = setTimeout(() => [...following().keys()].sort().join() === [...paths.keys()].sort().join() || end(), SETTLE_MS);
    };
    try {
      const asked = new URLSearchParams([...paths].map(([path, tag]) => ["follow", `${path}#${tag}`]));
      if (cursor) asked.set("cursor", String(cursor));
      for await (const { event, data } of serverEvents(await lines(`/v1/changes?${asked}`, "text/event-stream", read.signal))) {
        if (event === "change") {
          const changes = JSON.parse(data) as Changes;
          cursor = changes.cursor;
          if (failures) tellAll({ ...EVERYTHING, cursor });
          else tellAll(changes);
          failures = 0;
        } else if (event === "answer") {
          const told = JSON.parse(data) as Told;
          take(told);
          for (const theirs of wanted.values()) if (told.path in theirs) theirs[told.path] = told.tag ?? "";
          say({ told });
        } else if (event === "follows") {
          const carried = (JSON.parse(data) as { paths: string[] }).paths;
          carry(carried);
          say({ carried });
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (read.signal.aborted) continue;
      if (error instanceof ApiError && error.status === 401) return;
    } finally {
      clearTimeout(settling);
      reopen = () => undefined;
      signal.removeEventListener("abort", end);
    }
    if (read.signal.aborted && !signal.aborted) continue;
    failures += 1;
    carry([]);
    // Every tab asks at once whether the controller is there; those that go on asking say so when it is back.
    if (failures === 1 && !signal.aborted) tellAll(EVERYTHING);
    await pause(failures < 4 ? failures * 1000 : POLL_MS, signal);
    if (failures >= 4 && !signal.aborted) tellAll(EVERYTHING);
  }
}

function tell(changes: Heard): void {
  if (!changes.all && !changes.jobs.length && !changes.hosts.length && !changes.plans) return;
  for (const listener of listeners) listener(changes);
}
