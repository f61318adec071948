/** Wait; an abort ends it early. Nothing of it is left on the signal, which may live for hours. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const over = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", over);
      done();
    };
    const timer = setTimeout(over, ms);
    signal.addEventListener("abort", over);
  });
}
