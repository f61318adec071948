/** Streams of JSON lines that are read to their end, however often the connection breaks meanwhile. */
import { ApiError, failure, lines } from "./api.ts";
import { pause } from "./pause.ts";

/** That there was no answer, or that the controller is busy or on its way out: what passes. */
const PASSES = new Set([0, 429, 503]);
const LONGEST_MS = 10_000;

export interface Reader<T> {
  /** Asked at each opening: what is to be read now. */
  path: () => string;
  /** The first sign of life of each opening. */
  begun: () => void;
  /** Each line; true ends it. */
  take: (each: T) => boolean;
  /** It was cut, and is opened again in a moment. */
  cut: (problem: ApiError) => void;
}

/** Read to the end. Raises what does not pass by itself, and ends at once when it is aborted. */
export async function readOn<T>({ path, begun, take, cut }: Reader<T>, signal: AbortSignal): Promise<void> {
  for (let failures = 0; ; ) {
    try {
      let first = true;
      for await (const line of await lines(path(), "application/x-ndjson", signal)) {
        if (first) begun();
        first = false;
        failures = 0;
        if (!line) continue;
        const each = JSON.parse(line) as T & { error?: { code?: number; message: string } };
        if (each.error) throw new ApiError(each.error.code ?? 500, each.error.message);
        if (take(each)) return;
      }
      return;
    } catch (error) {
      const problem = failure(error);
      if (signal.aborted || !PASSES.has(problem.status)) throw problem;
      cut(problem);
    }
    failures += 1;
    await pause(Math.min(failures * 1000, LONGEST_MS), signal);
  }
}
