/** One stream of changes for the whole tab, let go while the tab is hidden: a browser has six connections in all. */
import { ApiError, lines } from "./api.ts";
import { serverEvents } from "./stream.ts";
import type { Changes } from "./types.ts";

type Listener = (changes: Changes) => void;

const HIDDEN_MS = 60_000;
const POLL_MS = 10_000;
const EVERYTHING: Changes = { cursor: 0, jobs: [], hosts: [], all: true };

const listeners = new Set<Listener>();
let cursor = 0;
let running: AbortController | null = null;
let hiding: ReturnType<typeof setTimeout> | undefined;

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
  void follow(running.signal);
}

function close(): void {
  running?.abort();
  running = null;
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(close, HIDDEN_MS);
  else open();
});

/** What follows a cut is fetched whole: nothing is known of the time between. */
async function follow(signal: AbortSignal): Promise<void> {
  let failures = 0;
  while (!signal.aborted) {
    try {
      const path = cursor ? `/v1/changes?cursor=${cursor}` : "/v1/changes";
      for await (const { event, data } of serverEvents(await lines(path, "text/event-stream", signal))) {
        if (event !== "change") continue;
        const changes = JSON.parse(data) as Changes;
        cursor = changes.cursor;
        if (failures) tell(EVERYTHING);
        else if (changes.all || changes.jobs.length || changes.hosts.length) tell(changes);
        failures = 0;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status === 401) return;
    }
    failures += 1;
    await pause(failures < 4 ? failures * 1000 : POLL_MS, signal);
    if (failures >= 4 && !signal.aborted) tell(EVERYTHING);
  }
}

function tell(changes: Changes): void {
  for (const listener of listeners) listener(changes);
}

/** Wait; an abort ends it early. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
