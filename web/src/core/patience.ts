const TICKS = 4;

/**
 * A wait that ends by itself: a signal of its own beside that of who asks, on which nothing is left afterwards. Time is
 * counted in ticks, of which a machine that was asleep misses all but one; how long one is, says `api.ts`.
 */
export class Patience {
  readonly #asker: AbortSignal | undefined;
  readonly #own = new AbortController();
  readonly #clock: ReturnType<typeof setInterval>;
  #left = TICKS;

  constructor(tickMs: number, asker?: AbortSignal) {
    this.#asker = asker;
    if (asker?.aborted) this.#own.abort();
    asker?.addEventListener("abort", this.#end);
    this.#clock = setInterval(() => --this.#left || this.#end(), tickMs);
  }

  /** Aborted once who asks gives up, or four ticks went by in silence. */
  get signal(): AbortSignal {
    return this.#own.signal;
  }

  /** A sign of life: the wait begins anew. */
  readonly heard = (): void => {
    this.#left = TICKS;
  };

  over(): void {
    clearInterval(this.#clock);
    this.#asker?.removeEventListener("abort", this.#end);
  }

  readonly #end = (): void => this.#own.abort();
}
