/** Where the pointer is on a time axis that several pictures share: heard by those who show it, drawing nothing else anew. */
import { useEffect, useState } from "preact/hooks";

export class Pointer {
  #at: number | null = null;
  readonly #listeners = new Set<(at: number | null) => void>();

  set(at: number | null): void {
    if (at === this.#at) return;
    this.#at = at;
    for (const listener of this.#listeners) listener(at);
  }

  listen(listener: (at: number | null) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** The moment that is pointed at, in epoch seconds; null where none is. */
export function usePointed(pointer: Pointer): number | null {
  const [at, setAt] = useState<number | null>(null);
  useEffect(() => pointer.listen(setAt), [pointer]);
  return at;
}
