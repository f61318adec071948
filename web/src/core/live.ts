/**
 * One stream of changes for all tabs of a browser, which has six connections to the controller in all: the tab that
 * holds the lock reads it and tells the others. A hidden tab lets go after a while.
 */
import { ApiError, lines } from "./api.ts";
import { pause } from "./pause.ts";
import { serverEvents } from "./stream.ts";
import type { Changes } from "./types/cluster.ts";

type Listener = (changes: Changes) => void;

const HIDDEN_MS = 60_000;
const POLL_MS = 10_000;
const EVERYTHING: Changes = { cursor: 0, jobs: [], hosts: [], all: true };
const NAME = "holdfast-changes";

const listeners = new Set<Listener>();
let cursor = 0;
let running: AbortController | null = null;
let hiding: ReturnType<typeof setTimeout> | undefined;
let others: BroadcastChannel | null = null;
let away = false;

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
  others.onmessage = (event: MessageEvent<Changes>): void => {
    cursor = event.data.cursor || cursor;
    tell(event.data);
  };
  // What another tab was told while this one did not listen is not known here.
  if (away) tell(EVERYTHING);
  away = false;
  navigator.locks.request(NAME, { signal }, () => follow(signal)).catch(() => undefined);
}

function close(): void {
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
  const tellAll = (changes: Changes): void => {
    tell(changes);
    if (!signal.aborted) others?.postMessage(changes);
  };
  while (!signal.aborted) {
    try {
      const path = cursor ? `/v1/changes?cursor=${cursor}` : "/v1/changes";
      for await (const { event, data } of serverEvents(await lines(path, "text/event-stream", signal))) {
        if (event !== "change") continue;
        const changes = JSON.parse(data) as Changes;
        cursor = changes.cursor;
        if (failures) tellAll({ ...EVERYTHING, cursor });
        else tellAll(changes);
        failures = 0;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status === 401) return;
    }
    failures += 1;
    // Every tab asks at once whether the controller is there; those that go on asking say so when it is back.
    if (failures === 1 && !signal.aborted) tellAll(EVERYTHING);
    await pause(failures < 4 ? failures * 1000 : POLL_MS, signal);
    if (failures >= 4 && !signal.aborted) tellAll(EVERYTHING);
  }
}

function tell(changes: Changes): void {
  if (!changes.all && !changes.jobs.length && !changes.hosts.length && !changes.plans) return;
  for (const listener of listeners) listener(changes);
}
