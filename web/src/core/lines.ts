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
  /** Where it begins in its stream. */
  offset: number;
  /** Not output: what the controller says about it. */
  problem: boolean;
}

const LONGEST = 16_384;
/** Characters that are kept in all, and those that a run takes beside its text. */
const MOST_CHARACTERS = 32 << 20;
const RUN = 60;

interface Open {
  /** Bytes without a line end yet, and where they begin. */
  rest: Uint8Array;
  at: number;
  pen: Pen;
}

const NEWLINE = 10;
const RETURN = 13;
const decoder = new TextDecoder();

/** Bytes of base64. A loop: `Uint8Array.from` makes a string of each byte first, 60 MB of them for 20,000 lines. */
function bytesOf(base64: string): Uint8Array {
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) found[at] = text.charCodeAt(at);
  return found;
}

type From = Pick<LogChunk, "worker" | "rank" | "generation" | "stream">;

function fromOf(key: string): From {
  const [worker, rank, generation, stream] = key.split("/");
  return { worker: worker ?? "", rank: Number(rank), generation: Number(generation), stream: stream ?? "" };
}

/** Characters of a line, its text once more than its runs. */
function sizeOf(line: Line): number {
  return 2 * line.text.length + RUN * line.runs.length;
}

/** Keeps the newest lines, at most `most`; unfinished ones are shown once their end has come, or by `flush`. */
export class Lines {
  readonly #most: number;
  readonly #open = new Map<string, Open>();
  #number = 0;
  #characters = 0;
  lines: Line[] = [];
  dropped = 0;

  constructor(most: number) {
    this.#most = most;
  }

  add(chunk: LogChunk): void {
    const key = `${chunk.worker}/${chunk.rank}/${chunk.generation}/${chunk.stream}`;
    const open = this.#open.get(key) ?? { rest: new Uint8Array(), at: chunk.offset, pen: { ...PLAIN } };
    this.#open.set(key, open);
    if (chunk.data) this.#take(chunk, open, bytesOf(chunk.data));
    if (chunk.problem) this.#keep(chunk, chunk.offset, [{ text: chunk.problem, look: "" }], true);
    this.#trim();
  }

  #take(chunk: LogChunk, open: Open, data: Uint8Array): void {
    const bytes = new Uint8Array(open.rest.length + data.length);
    bytes.set(open.rest);
    bytes.set(data, open.rest.length);
    if (!open.rest.length) open.at = chunk.offset;
    let begin = 0;
    for (let line = 0; ; line++) {
      const end = bytes.indexOf(NEWLINE, begin);
      if (end < 0) break;
      this.#push(chunk, open, bytes.subarray(begin, end), chunk.lineOffsets?.[line] ?? open.at + begin);
      begin = end + 1;
    }
    // A progress bar may never end its line: what it has drawn over is let go.
    if (bytes.length - begin > LONGEST) begin = Math.max(begin, bytes.lastIndexOf(RETURN) + 1, bytes.length - LONGEST);
    open.rest = bytes.slice(begin);
    open.at += begin;
  }

  /** Show what has no line end yet: the stream is over. */
  flush(): void {
    for (const [key, open] of this.#open) {
      if (!open.rest.length) continue;
      this.#push(fromOf(key), open, open.rest, open.at);
      open.rest = new Uint8Array();
    }
    this.#trim();
  }

  #push(from: From, open: Open, bytes: Uint8Array, offset: number): void {
    const text = decoder.decode(bytes);
    const [found, pen] = runs(text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text, open.pen);
    open.pen = pen;
    this.#keep(from, offset, found, false);
  }

  #keep(from: Omit<From, "worker">, offset: number, found: Run[], problem: boolean): void {
    this.lines.push({
      number: this.#number++,
      rank: from.rank,
      generation: from.generation,
      stream: from.stream,
      offset,
      runs: found,
      text: found.length === 1 ? (found[0] as Run).text : found.map((run) => run.text).join(""),
      problem,
    });
    this.#characters += sizeOf(this.lines.at(-1) as Line);
  }

  /** The lines, and after them what has no line end yet, as far as it has come. */
  withOpen(): Line[] {
    const kept = this.lines;
    const [number, characters] = [this.#number, this.#characters];
    this.lines = [];
    for (const [key, open] of this.#open) {
      if (open.rest.length) this.#push(fromOf(key), { ...open }, open.rest, open.at);
    }
    const last = this.lines;
    [this.lines, this.#number, this.#characters] = [kept, number, characters];
    return last.length ? [...kept, ...last] : kept;
  }

  #trim(): void {
    const over = this.lines.length - this.#most;
    let drop = over > this.#most / 10 ? over : 0;
    let left = this.#characters;
    for (let at = 0; at < drop; at++) left -= sizeOf(this.lines[at] as Line);
    if (left > MOST_CHARACTERS) {
      for (; left > 0.9 * MOST_CHARACTERS && drop < this.lines.length - 1; drop++) left -= sizeOf(this.lines[drop] as Line);
    }
    if (!drop) return;
    this.lines = this.lines.slice(drop);
    this.#characters = left;
    this.dropped += drop;
  }
}
