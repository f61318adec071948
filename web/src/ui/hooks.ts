import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { failure, fails, getTagged, withdraws } from "../core/api.ts";
import type { ApiError } from "../core/api.ts";
import { carries, follow } from "../core/followed.ts";
import { onChange } from "../core/live.ts";
import { pause } from "../core/pause.ts";
import type { Changes } from "../core/types/cluster.ts";

/** Epoch seconds now, anew each `every` seconds. */
export function useNow(every = 1): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), every * 1000);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

export interface Loaded<T> {
  /** The newest answer; kept while the controller is away. */
  data: T | null;
  error: ApiError | null;
  again: () => void;
}

const LEAST_MS = 1000;

/** Of what is asked for once: nothing that happens touches it. */
export const once = (): boolean => false;

/**
 * The answer of a path, and what becomes of it: followed on the stream of changes, or, where that doesn't tell of it,
 * fetched again when `touched` says that a change is about it, at most once a second. One that nothing touches stays.
 */
export function useData<T>(path: string | null, touched: (changes: Changes) => boolean): Loaded<T> {
  const [held, setHeld] = useState<{ path: string | null; data: T | null; error: ApiError | null }>({
    path,
    data: null,
    error: null,
  });
  const wake = useRef<() => void>(() => undefined);
  const touches = useRef(touched);
  touches.current = touched;
  // Not once the frame is painted: an answer takes longer than that, and is what people wait for.
  useLayoutEffect(() => {
    if (path === null) return undefined;
    const ended = new AbortController();
    let due = true;
    let woken: () => void = () => undefined;
    const ask = (): void => {
      due = true;
      woken();
    };
    wake.current = ask;
    let unfollow: () => void = () => undefined;
    const stop = onChange((changes) => {
      if (changes.lost || (!carries(path) && (changes.all || touches.current(changes)))) ask();
    });
    void (async () => {
      let failures = 0;
      while (!ended.signal.aborted) {
        if (!due) await new Promise<void>((done) => (woken = done));
        if (ended.signal.aborted) return;
        due = false;
        try {
          const { data, tag } = await getTagged<T>(path, ended.signal);
          setHeld({ path, data, error: null });
          unfollow();
          if (tag && touches.current !== once) unfollow = follow<T>(path, tag, data, (told) => (told ? setHeld({ path, data: told, error: null }) : ask()));
          failures = 0;
        } catch (problem) {
          if (ended.signal.aborted) return;
          const error = failure(problem);
          setHeld((now) => ({ path, data: now.path === path && !withdraws(error) ? now.data : null, error }));
          if (error.status === 401) return;
          if (fails(error)) {
            due = true;
            failures += 1;
            await pause(Math.min(failures, 5) * 1000, ended.signal);
          }
        }
        await pause(LEAST_MS, ended.signal);
      }
    })();
    return () => {
      stop();
      unfollow();
      ended.abort();
      woken();
    };
  }, [path]);
  const again = useCallback(() => wake.current(), []);
  return held.path === path ? { data: held.data, error: held.error, again } : { data: null, error: null, again };
}

/** Whether the tab is seen, or was a moment ago: what goes on is let go of by a hidden one, as connections are few. */
export function useSeen(): boolean {
  const [seen, setSeen] = useState(!document.hidden);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const changed = (): void => {
      clearTimeout(timer);
      if (!document.hidden) setSeen(true);
      else timer = setTimeout(() => setSeen(false), 5000);
    };
    document.addEventListener("visibilitychange", changed);
    return () => (clearTimeout(timer), document.removeEventListener("visibilitychange", changed));
  }, []);
  return seen;
}

/** The document's title while a page is shown. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · Holdfast` : "Holdfast";
  }, [title]);
}
