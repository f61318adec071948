/** Small parts that every page uses. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../core/api.ts";
import { groupClass, groupWords, sums } from "../core/ledger.ts";
import type { Goodput } from "../core/types/goodput.ts";
import { age, clock, epoch, look, moment, oneLine, percent, stateName } from "../core/words.ts";
import type { Loaded } from "./hooks.ts";

/** Text of others, on one line. */
export function Text({ of }: { of: string }): JSX.Element {
  return <bdi>{oneLine(of)}</bdi>;
}

const SHAPES: Record<string, string> = {
  waits: "M6 1a5 5 0 1 0 5 5H6z",
  runs: "M2 1l9 5-9 5z",
  good: "M1 6.5l3.5 3.5L11 2.5",
  bad: "M2 2l8 8M10 2l-8 8",
  stopped: "M2 2h8v8H2z",
};

/** A job's state in word, shape and colour. */
export function State({ of }: { of: string }): JSX.Element {
  const kind = look(of);
  return (
    <span class={`state s-${kind}`}>
      <svg viewBox="0 0 12 12" aria-hidden="true">
        <path d={SHAPES[kind] ?? ""} class={kind === "good" || kind === "bad" ? "stroked" : "filled"} />
      </svg>
      {stateName(of).toLowerCase().replaceAll("_", " ")}
    </span>
  );
}

/** A moment, in full on demand. */
export function Time({ at, now }: { at: string | number | null; now: number }): JSX.Element {
  const seconds = typeof at === "number" ? at : epoch(at);
  if (seconds === null) return <span>–</span>;
  return (
    <time dateTime={new Date(seconds * 1000).toISOString()} title={`${moment(seconds)}, ${moment(seconds, true)} UTC`}>
      {clock(seconds, now)}
    </time>
  );
}

export function Ago({ at, now }: { at: string | null; now: number }): JSX.Element {
  const seconds = epoch(at);
  if (seconds === null) return <span>–</span>;
  return <time dateTime={at ?? ""} title={moment(seconds)}>{age(now - seconds)}</time>;
}

/** What failed, in the controller's words. */
export function Problem({ error, again }: { error: ApiError; again?: () => void }): JSX.Element {
  return (
    <div class="problem" role="alert">
      <p>{error.message}</p>
      {again && <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}

/** What failed, beside what was known before; while the controller is away the banner says so for all of the page. */
export function Stale({ of: { data, error, again } }: { of: Loaded<unknown> }): JSX.Element | null {
  return error && (error.status !== 0 || !data) ? <Problem error={error} again={again} /> : null;
}

/** A page that has nothing to show yet, and what to type. */
export function Empty({ children, command }: { children: ComponentChildren; command?: string }): JSX.Element {
  return (
    <div class="empty">
      <p>{children}</p>
      {command && <Command line={command} />}
    </div>
  );
}

export function Loading(): JSX.Element {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return <p class="loading" role="status">{shown ? "Loading…" : ""}</p>;
}

/** A page without its data: why there is none, or that it comes. */
export function Unready({ title, error, again }: { title: string; error: ApiError | null; again: () => void }): JSX.Element {
  return (
    <div class="page">
      <h1><Text of={title} /></h1>
      {error ? <Problem error={error} again={again} /> : <Loading />}
    </div>
  );
}

/** A command line to copy. */
export function Command({ line }: { line: string }): JSX.Element {
  const [copied, setCopied] = useState(false);
  const copy = (): void => {
    void navigator.clipboard?.writeText(line).then(() => setCopied(true), () => undefined);
  };
  return (
    <div class="command">
      <code tabIndex={0}>{line}</code>
      <button type="button" onClick={copy} aria-label={`Copy: ${line}`}>{copied ? "Copied" : "Copy"}</button>
    </div>
  );
}

/** The goodput bar with its legend: groups of the ledger, hatched where work is not saved yet. */
export function GoodputBar({ of, legend = true }: { of: Pick<Goodput, "lines"> & Partial<Pick<Goodput, "level">>; legend?: boolean }): JSX.Element {
  const groups = sums(of.lines).filter(([, ms]) => ms > 0);
  const total = groups.reduce((sum, [, ms]) => sum + ms, 0) || 1;
  const words = groups.map(([name, ms]) => `${groupWords(name, of.level)} ${percent(ms / total)}`);
  let at = 0;
  return (
    <div class="goodput">
      <svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label={words.join(", ")}>
        <Hatches />
        {groups.map(([name, ms]) => {
          const x = at;
          at += (1000 * ms) / total;
          return <rect key={name} x={x} y="0" width={(1000 * ms) / total} height="10" class={groupClass(name)} />;
        })}
      </svg>
      {legend && (
        <ul class="legend">
          {groups.map(([name], index) => (
            <li key={name}><i class={`key ${groupClass(name)}`} />{words[index]}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** Fill patterns for what must be told apart without colour. */
export function Hatches(): JSX.Element {
  return (
    <defs>
      <pattern id="hatch-good" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect width="6" height="6" class="hatch-good-base" /><rect width="2.5" height="6" class="hatch-line" />
      </pattern>
      <pattern id="hatch-unknown" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
        <rect width="6" height="6" class="hatch-unknown-base" /><rect width="1.5" height="6" class="hatch-line" />
      </pattern>
    </defs>
  );
}

export interface Column<R> {
  title: string;
  cell: (row: R) => ComponentChildren;
  /** Numbers are set right. */
  right?: boolean;
  /** Takes what width there is. */
  wide?: boolean;
  /** Is never broken into lines. */
  whole?: boolean;
}

/** Rows of a table that are drawn at once: each costs a tab some kB. */
const ROWS_AT_ONCE = 300;

/** A table that becomes a list of cards on a phone. Of many rows the first are drawn, and more on demand. */
export function Table<R>(props: { caption: string; columns: Column<R>[]; rows: R[]; id: (row: R, index: number) => string | number }): JSX.Element {
  const [most, setMost] = useState(ROWS_AT_ONCE);
  const left = props.rows.length - most;
  return (
    <div class="table" role="group" aria-label={props.caption} tabIndex={0}>
      <table>
        <caption class="unseen">{props.caption}</caption>
        <thead>
          <tr>{props.columns.map(({ title, right }) => <th key={title} scope="col" class={right ? "right" : ""}>{title}</th>)}</tr>
        </thead>
        <tbody>
          {props.rows.slice(0, most).map((row, index) => (
            <tr key={props.id(row, index)}>
              {props.columns.map(({ title, cell, right, wide, whole }) => (
                <td key={title} data-title={title} class={`${right ? "right" : ""}${wide ? " wide" : ""}${whole ? " whole-word" : ""}`}><div>{cell(row)}</div></td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {left > 0 && (
        <p class="soft">
          {most.toLocaleString("en")} of {props.rows.length.toLocaleString("en")} rows.{" "}
          <button type="button" onClick={() => setMost(most + ROWS_AT_ONCE)}>Show {Math.min(left, ROWS_AT_ONCE).toLocaleString("en")} more</button>
        </p>
      )}
    </div>
  );
}

/** A number, of at most so many where there is a limit; one that is reached has a word beside its colour. */
export function Used({ of, most }: { of: number; most: number | null }): JSX.Element {
  if (most === null) return <>{of.toLocaleString("en")}</>;
  return <span class={of >= most ? "bad" : ""}>{of.toLocaleString("en")} of {most.toLocaleString("en")}{of >= most && " (full)"}</span>;
}

/** Rows of one height of which only those in sight are drawn. The element scrolls by itself. */
export function Windowed(props: {
  count: number;
  height: number;
  label: string;
  /** Within a table its rows are a group of that. */
  role?: "region" | "rowgroup";
  class?: string;
  row: (index: number) => JSX.Element;
  /** Called with the first and last row in sight. */
  seen?: (first: number, last: number) => void;
  /** Keep the end in sight as rows are added. */
  pinned?: boolean;
  /** The row that is the first in sight once rows are there. */
  begin?: number;
  unpin?: () => void;
}): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const first = Math.max(0, Math.floor(view.top / props.height) - 10);
  const last = Math.min(props.count, Math.ceil((view.top + view.height) / props.height) + 10);
  const look = (): void => {
    const element = box.current;
    if (!element) return;
    setView((now) => {
      const found = { top: element.scrollTop, height: element.clientHeight };
      return found.top === now.top && found.height === now.height ? now : found;
    });
  };
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const watcher = new ResizeObserver(look);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  useEffect(() => {
    if (props.pinned && box.current) box.current.scrollTop = box.current.scrollHeight;
    look();
  }, [props.count, props.pinned]);
  useEffect(() => {
    if (props.begin && box.current) box.current.scrollTop = props.begin * props.height;
    look();
  }, [props.begin]);
  useEffect(() => props.seen?.(first, last), [first, last, props.count]);
  const shown = [];
  for (let index = first; index < last; index++) shown.push(props.row(index));
  const scrolled = (): void => {
    look();
    const element = box.current;
    if (props.pinned && element && element.scrollHeight - element.scrollTop - element.clientHeight > 3 * props.height) {
      props.unpin?.();
    }
  };
  return (
    <div class={`windowed ${props.class ?? ""}`} ref={box} onScroll={scrolled} tabIndex={0} role={props.role ?? "region"} aria-label={props.label}>
      <div class="whole" role="presentation" style={{ height: `${props.count * props.height}px` }}>
        <div class="seen" role="presentation" style={{ transform: `translateY(${first * props.height}px)` }}>{shown}</div>
      </div>
    </div>
  );
}

/** A modal dialog; Escape closes it, and what had the focus gets it back. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  return (
    <dialog ref={element} onClose={close} aria-labelledby="dialog-title">
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}
