/** What is typed into a shell, on its way there: in order, one call at a time, each with all that has come meanwhile. */

/** Bytes of one call. */
export const CALL_BYTES = 32_000;
/** What waits here while the shell's program reads nothing; more is refused. */
export const WAITING_BYTES = 32 << 20;
const CONTROL_C = 3;

export interface Size {
  rows: number;
  columns: number;
}

/** Passes on what is typed; `write` says how many bytes were taken, -1 if nothing arrived, and throws once the shell has ended. */
export class Input {
  readonly #write: (data: Uint8Array, size: Size | null) => Promise<number>;
  #waiting: Uint8Array[] = [];
  #bytes = 0;
  #size: Size | null = null;
  #passing = false;

  constructor(write: (data: Uint8Array, size: Size | null) => Promise<number>) {
    this.#write = write;
  }

  /** Whether there was room for it. A Ctrl-C takes the place of what still waits, as on any terminal. */
  type(data: Uint8Array): boolean {
    if (data.length === 1 && data[0] === CONTROL_C) [this.#waiting, this.#bytes] = [[], 0];
    if (this.#bytes + data.length > WAITING_BYTES) return false;
    this.#waiting.push(data);
    this.#bytes += data.length;
    void this.#pass();
    return true;
  }

  resize(size: Size): void {
    this.#size = size;
    void this.#pass();
  }

  async #pass(): Promise<void> {
    if (this.#passing) return;
    this.#passing = true;
    try {
      while (this.#bytes || this.#size) {
        const [data, size] = [this.#next(), this.#size];
        this.#size = null;
        const waited = this.#waiting;
        const taken = await this.#write(data, size);
        // Unless a Ctrl-C came meanwhile.
        if (taken < data.length && this.#waiting === waited) this.#back(data.subarray(Math.max(taken, 0)));
        if (taken < data.length) this.#size ??= size; // a host whose program reads nothing has not set it either
      }
      this.#passing = false;
    } catch {
      [this.#waiting, this.#bytes] = [[], 0]; // it has ended: nothing passes any more
    }
  }

  #next(): Uint8Array {
    const data = new Uint8Array(Math.min(this.#bytes, CALL_BYTES));
    let at = 0;
    while (at < data.length) {
      const first = this.#waiting[0] ?? new Uint8Array();
      const part = first.subarray(0, data.length - at);
      data.set(part, at);
      at += part.length;
      if (part.length === first.length) this.#waiting.shift();
      else this.#waiting[0] = first.subarray(part.length);
    }
    this.#bytes -= data.length;
    return data;
  }

  #back(data: Uint8Array): void {
    this.#waiting.unshift(data);
    this.#bytes += data.length;
  }
}
