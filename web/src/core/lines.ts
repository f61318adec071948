/** Chunks of the log stream as lines: bytes are joined by rank and stream, decoded, and bounded. */
import { overwritten, PLAIN, runs } from "./ansi.ts";
import type { Pen, Run } from "./ansi.ts";
import type { LogChunk } from "./types/records.ts";

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
/** What all lines together may weigh, in characters; a run weighs as much as this many. */
const HEAVIEST = 16_000_000;
const RUN_WEIGHT = 64;

interface Open {
  /** Bytes without a line end yet, and where they begin. */
  rest: Uint8Array;
  at: number;
  pen: Pen;
  /** What is shown of it meanwhile; null where that is not known yet. */
  line: Line | null;
  from: From;
  /** Of that line: no other has it, and it stays the same as the line grows. */
  number: number;
}

type From = Pick<LogChunk, "rank" | "generation" | "stream">;

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

/** Keeps the newest lines, at most `most` and as many as a tab can bear; those whose end has not come are in `shown` alone. */
export class Lines {
  readonly #most: number;
  readonly #open = new Map<string, Open>();
  #number = 0;
  #weight = 0;
  lines: Line[] = [];
  dropped = 0;

  constructor(most: number) {
    this.#most = most;
  }

  add(chunk: LogChunk): void {
    const key = `${chunk.worker}/${chunk.rank}/${chunk.generation}/${chunk.stream}`;
    const { rank, generation, stream, offset } = chunk;
    const open = this.#open.get(key) ?? {
      rest: new Uint8Array(), at: offset, pen: { ...PLAIN }, line: null, from: { rank, generation, stream }, number: -1 - this.#open.size,
    };
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
    if (bytes.length - begin > LONGEST) begin = Math.max(begin, pictureAt(bytes), bytes.length - LONGEST);
    open.rest = bytes.slice(begin);
    open.at += begin;
    open.line = null;
  }

  /** The lines, and after them what has no line end yet: a progress bar, or a question. */
  get shown(): Line[] {
    const open = [...this.#open.values()].filter(({ rest }) => rest.length);
    return open.length ? [...this.lines, ...open.map((each) => (each.line ??= this.#unfinished(each)))] : this.lines;
  }

  #unfinished({ rest, pen, from, number, at }: Open): Line {
    // A character of which the end is missing is left out.
    return line(from, number, at, drawn(new TextDecoder().decode(rest, { stream: true }), pen)[0], false);
  }

  /** Show what has no line end yet: the stream is over. */
  flush(): void {
    for (const open of this.#open.values()) {
      if (!open.rest.length) continue;
      this.#push(open.from, open, open.rest, open.at);
      open.rest = new Uint8Array();
    }
    this.#trim();
  }

  #push(from: From, open: Open, bytes: Uint8Array, offset: number): void {
    const [found, pen] = drawn(decoder.decode(bytes), open.pen);
    open.pen = pen;
    this.#keep(from, offset, found, false);
  }

  #keep(from: From, offset: number, found: Run[], problem: boolean): void {
    const kept = line(from, this.#number++, offset, found, problem);
    this.lines.push(kept);
    this.#weight += weight(kept);
  }

  #trim(): void {
    let over = this.lines.length - this.#most;
    if (over <= this.#most / 10 && this.#weight <= HEAVIEST) return;
    over = Math.max(over, 0);
    for (const gone of this.lines.slice(0, over)) this.#weight -= weight(gone);
    // A tenth more than is needed: the next line is not to copy all of them again.
    while (this.#weight > 0.9 * HEAVIEST) this.#weight -= weight(this.lines[over++] as Line);
    this.lines = this.lines.slice(over);
    this.dropped += over;
  }
}

/** Where the last picture of a progress bar begins; returns behind it have drawn over nothing. */
function pictureAt(bytes: Uint8Array): number {
  let end = bytes.length;
  while (end > 1 && bytes[end - 1] === RETURN) end--;
  return bytes.lastIndexOf(RETURN, end - 1) + 1;
}

/** What is too long is cut once what was drawn over is gone: of a progress bar the last picture is what counts. */
function drawn(text: string, pen: Pen): [Run[], Pen] {
  const left = text.length > LONGEST ? overwritten(text) : text;
  return runs(left.length > LONGEST ? `${left.slice(0, LONGEST)}…` : left, pen);
}

const weight = ({ text, runs: parts }: Line): number => text.length + RUN_WEIGHT * parts.length;

function line({ rank, generation, stream }: From, number: number, offset: number, found: Run[], problem: boolean): Line {
  const text = found.length === 1 ? (found[0] as Run).text : found.map((run) => run.text).join("");
  return { number, rank, generation, stream, offset, runs: found, text, problem };
}
