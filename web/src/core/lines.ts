/** Chunks of the log stream as lines: bytes are joined by rank and stream, decoded, and bounded. */
import { PLAIN, runs } from "./ansi.ts";
import type { Pen, Run } from "./ansi.ts";
import type { LogChunk } from "./types.ts";

export interface Line {
  number: number;
  rank: number;
  generation: number;
  stream: string;
  runs: Run[];
  text: string;
  /** Not output: what the controller says about it. */
  problem: boolean;
}

const LONGEST = 16_384;

interface Open {
  decoder: TextDecoder;
  rest: string;
  pen: Pen;
}

/** Keeps the newest lines, at most `most`; unfinished ones are shown once their end has come, or by `flush`. */
export class Lines {
  readonly #most: number;
  readonly #open = new Map<string, Open>();
  #number = 0;
  lines: Line[] = [];
  dropped = 0;

  constructor(most: number) {
    this.#most = most;
  }

  add(chunk: LogChunk): void {
    const key = `${chunk.worker}/${chunk.rank}/${chunk.generation}/${chunk.stream}`;
    const open = this.#open.get(key) ?? { decoder: new TextDecoder(), rest: "", pen: { ...PLAIN } };
    this.#open.set(key, open);
    if (chunk.data) {
      const bytes = Uint8Array.from(atob(chunk.data), (character) => character.charCodeAt(0));
      const parts = (open.rest + open.decoder.decode(bytes, { stream: true })).split("\n");
      open.rest = parts.pop() ?? "";
      for (const part of parts) this.#push(chunk, open, part);
      // A progress bar may never end its line: what it has drawn over is let go.
      if (open.rest.length > LONGEST) open.rest = open.rest.slice(open.rest.lastIndexOf("\r") + 1).slice(-LONGEST);
    }
    if (chunk.problem) this.#keep(chunk, [{ text: chunk.problem, look: "" }], true);
    this.#trim();
  }

  /** Show what has no line end yet: the stream is over. */
  flush(): void {
    for (const [key, open] of this.#open) {
      if (!open.rest) continue;
      const [worker, rank, generation, stream] = key.split("/");
      this.#push({ worker: worker ?? "", rank: Number(rank), generation: Number(generation), stream: stream ?? "" }, open, open.rest);
      open.rest = "";
    }
    this.#trim();
  }

  #push(from: Pick<LogChunk, "worker" | "rank" | "generation" | "stream">, open: Open, text: string): void {
    const [found, pen] = runs(text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text, open.pen);
    open.pen = pen;
    this.#keep(from, found, false);
  }

  #keep(from: Pick<LogChunk, "rank" | "generation" | "stream">, found: Run[], problem: boolean): void {
    this.lines.push({
      number: this.#number++,
      rank: from.rank,
      generation: from.generation,
      stream: from.stream,
      runs: found,
      text: found.map((run) => run.text).join(""),
      problem,
    });
  }

  #trim(): void {
    const over = this.lines.length - this.#most;
    if (over > this.#most / 10) {
      this.lines = this.lines.slice(over);
      this.dropped += over;
    }
  }
}
