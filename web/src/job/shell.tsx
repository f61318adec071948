import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, lines, send } from "../core/api.ts";
import { gang } from "../core/gang.ts";
import { Input } from "../core/input.ts";
import type { Size } from "../core/input.ts";
import { pause } from "../core/pause.ts";
import { broken, ending } from "../core/shell.ts";
import type { ShellPart } from "../core/shell.ts";
import type { Job } from "../core/types/job.ts";
import { ended } from "../core/words.ts";
import { Command, Empty, Text } from "../ui/bits.tsx";
import { setQuery } from "../ui/router.ts";
import type { Screen } from "./screen.ts";

/** Shells of one browser, which has six connections to the controller in all. */
const MOST = 3;
const BUSY_MS = 500;

/** A shell beside a rank, as `holdfast job shell` opens one. It ends when the page is left. */
export function Shell({ job, rank }: { job: Job; rank: string }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const screen = useRef<Screen | null>(null);
  const running = useRef<AbortController | null>(null);
  const [said, setSaid] = useState("");
  const [open, setOpen] = useState(false);
  const [beside, setBeside] = useState(rank);
  const shown = open ? beside : rank;
  const { ranks } = gang(job.jobSpec);
  const wrong = /^\d+$/.test(rank) && Number(rank) < ranks ? "" : `Ranks of this job are 0 to ${ranks - 1}.`;

  useEffect(() => () => (running.current?.abort(), screen.current?.close()), []);
  useEffect(() => {
    if (!open) return undefined;
    const stay = (event: BeforeUnloadEvent): void => event.preventDefault();
    addEventListener("beforeunload", stay);
    return () => removeEventListener("beforeunload", stay);
  }, [open]);

  const begin = async (): Promise<void> => {
    const mine = (running.current = new AbortController());
    setOpen(true);
    setBeside(rank);
    setSaid("Opening…");
    const words = await inPlace(async () => {
      const drawn = await import("./screen.ts");
      if (!place.current || mine.signal.aborted) return "";
      screen.current?.close();
      const input = new Input((data, size) => write(job.id, name, data, size, mine.signal));
      let name = "";
      const early: (() => void)[] = [];
      const once = (act: () => void): void => void (name ? act() : early.push(act));
      screen.current = drawn.screen(place.current, {
        typed: (data) => once(() => input.type(data) || setSaid("Not pasted: more than 32 MiB would wait for the shell to read them.")),
        resized: (size) => once(() => input.resize(size)),
        left: () => button.current?.focus(),
      });
      const { rows, columns } = screen.current.size;
      const asked = { rank: Number(rank), terminal: true, rows, columns, term: "xterm-256color" };
      return follow(job.id, asked, screen.current, mine.signal, (given) => {
        name = given;
        setSaid("");
        screen.current?.focus();
        place.current?.scrollIntoView({ block: "nearest" });
        for (const act of early) act();
      });
    });
    if (mine.signal.aborted) return;
    mine.abort(); // nothing more is typed
    setSaid(words ?? `This browser has ${MOST} shells open already. Close one of them first.`);
    setOpen(false);
  };
  const leave = (): void => {
    running.current?.abort();
    setOpen(false);
    setSaid("You closed the shell.");
  };

  const allowed = job.jobSpec["enableWebAccess"] === true;
  if (!allowed || ended(job.state)) {
    const why = allowed ? "The job has ended: there is no rank to be beside." : "This job allows no shells: it was submitted without --enable-web-access.";
    return <div class="panel"><Empty>{why}</Empty></div>;
  }
  return (
    <section class="panel shell-panel" aria-label="Shell beside a rank">
      <form class="filters" onSubmit={(event) => (event.preventDefault(), open ? leave() : void begin())}>
        <label>Rank <input size={6} inputMode="numeric" value={shown} disabled={open} aria-invalid={!!wrong} onChange={(event) => setQuery({ rank: event.currentTarget.value.trim() })} /></label>
        <button ref={button} type="submit" class={open ? "" : "primary"} disabled={!open && !!wrong}>{open ? "Close the shell" : "Open a shell"}</button>
        <label class="check"><input type="checkbox" onChange={(event) => screen.current?.aloud(event.currentTarget.checked)} disabled={!open} />for a screen reader</label>
      </form>
      <p role="status" class={wrong ? "refused" : "soft"}>
        {wrong || <Text of={said || (open ? "Ctrl-Shift-Enter leaves the terminal, Ctrl-Shift-C copies. The shell ends when you leave this job's page." : "Only the job's owner gets one. It has the rank's account, environment and limits, and is on record.")} />}
      </p>
      <div ref={place} class="screen" hidden={!open && !screen.current} />
      <Command line={`holdfast job shell ${job.id}${shown === "0" ? "" : ` --rank ${shown}`}`} />
    </section>
  );
}

/** Show what the shell writes, until its end; in words how it ended. */
async function follow(id: string, asked: object, screen: Screen, signal: AbortSignal, begun: (name: string) => void): Promise<string> {
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  try {
    for await (const line of await lines(`${path}:shell`, "application/x-ndjson", signal, asked)) {
      if (!line) continue; // a sign of life
      const part = JSON.parse(line) as ShellPart;
      if (part.shell) begun(part.shell);
      if (part.data) await screen.show(Uint8Array.from(atob(part.data), (character) => character.charCodeAt(0)));
      const words = ending(part);
      if (words) return words;
    }
  } catch (error) {
    if (error instanceof ApiError && error.status) return error.message;
  }
  if (signal.aborted) return "";
  return broken(await get(path, signal).then(() => null, (error: unknown) => (error instanceof ApiError ? error : null)));
}

/** Type into the shell; how many bytes were taken. At a controller that is busy nothing arrives. */
async function write(id: string, shell: string, data: Uint8Array, size: Size | null, signal: AbortSignal): Promise<number> {
  signal.throwIfAborted();
  const text = btoa(Array.from(data, (byte) => String.fromCharCode(byte)).join(""));
  try {
    const path = `/v1/jobs/${encodeURIComponent(id)}:writeShell`;
    return (await send<{ taken: number }>(path, { shell, data: text, ...size })).taken;
  } catch (error) {
    if (!(error instanceof ApiError) || (error.status !== 503 && error.status !== 429)) throw error;
    await pause(BUSY_MS, signal);
    return -1;
  }
}

/** Do `work` in one of the browser's few places for shells; null where none is free. */
async function inPlace(work: () => Promise<string>): Promise<string | null> {
  for (let place = 0; place < MOST; place++) {
    const done = await navigator.locks.request(`holdfast-shell-${place}`, { ifAvailable: true }, async (lock) => lock && work());
    if (done !== null) return done;
  }
  return null;
}
