import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { firstSteps } from "../core/charts.ts";
import { ahead, apart, RANGES, saveMarks, strip, ticks } from "../core/strip.ts";
import type { Mark, Span } from "../core/strip.ts";
import type { Goodput } from "../core/types/goodput.ts";
import type { Job } from "../core/types/job.ts";
import { clock, ended, epoch, moment, span } from "../core/words.ts";
import { Table } from "../ui/bits.tsx";
import { useNow } from "../ui/hooks.ts";
import { Pointer } from "../ui/pointer.ts";
import { setQuery } from "../ui/router.ts";
import { Charts, Cursor, useSeries } from "./charts.tsx";

const KINDS: Record<Span["kind"], string> = { waits: "waiting", runs: "running", lost: "interrupted", unheard: "host silent" };
const GLYPHS: Record<Mark["kind"], string> = { exit: "✕", hang: "◆", relaunch: "▶", step: "●", save: "⚑", end: "■" };
const MARK_WORDS: Record<Mark["kind"], string> = { exit: "exit", hang: "hang noticed", relaunch: "relaunched", step: "first steps", save: "saved", end: "end" };

/** Nearer to each other, marks of a kind could not be told apart. */
const MARK_PX = 14;
/** The strip moves on when its end has moved by a part of a pixel: of a long time not each second. */
const SEEN_PARTS = 2000;
const SELDOM_S = 60;

const ABOVE = new Set<Mark["kind"]>(["hang", "save"]);

/** The job's time on one axis: when it waited, ran and was interrupted, and by what. */
export function Timeline({ job, goodput, query }: { job: Job; goodput: Goodput | null; query: URLSearchParams }): JSX.Element {
  const live = !ended(job.state);
  const now = useNow(live ? Math.min(SELDOM_S, Math.max(1, Math.floor(shownFor(job, query) / SEEN_PARTS))) : SELDOM_S);
  const whole = strip(job, now, epoch(goodput?.silentSince ?? null));
  const series = useSeries(job, query);
  const pointer = useMemo(() => new Pointer(), []);
  const steps = series.charts.find((each) => each.figure === "step");
  for (const { generation, at } of steps ? firstSteps(steps, whole.generations) : []) {
    whole.marks.push({ at, kind: "step", title: `generation ${generation} made steps within ${span(steps?.step ?? 60)} from then` });
  }
  whole.marks.push(...saveMarks(goodput?.saves ?? []));
  const range = chosen(query, whole.from, whole.to);
  const [picked, setPicked] = useState<string>("");
  const [tabled, setTabled] = useState(whole.spans.length < 12);
  const [box, width] = useWidth();
  const drag = useRef<number | null>(null);
  const [brush, setBrush] = useState<[number, number] | null>(null);
  const x = (at: number): number => (width * (at - range.from)) / (range.to - range.from);
  const at = (event: PointerEvent): number => {
    const left = (event.currentTarget as Element).getBoundingClientRect().left;
    const share = Math.min(1, Math.max(0, (event.clientX - left) / width));
    return range.from + share * (range.to - range.from);
  };
  const visible = whole.spans.filter((each) => each.to > range.from && each.from < range.to);
  const marks = whole.marks.filter((each) => each.at >= range.from && each.at <= range.to);
  const days = range.to - range.from > 172_800;
  const set = (from: number, to: number): void => setQuery({ from: iso(from), to: iso(to), last: "", recording: "" });
  return (
    <div class="panel timeline">
      <div class="ranges" role="group" aria-label="Range">
        {RANGES.filter(([, size]) => size < whole.to - whole.from).map(([name, size]) => (
          <button key={name} type="button" aria-pressed={query.get("last") === name} onClick={() => setQuery({ last: name, from: "", to: "", recording: "" })}>
            last {name}<span class="unseen"> ({size} seconds)</span>
          </button>
        ))}
        {(!range.all || whole.to - whole.from > 900) && <button type="button" aria-pressed={range.all} onClick={() => setQuery({ last: "", from: "", to: "", recording: "" })}>all</button>}
        <span class="soft">{moment(range.from)} – {clock(range.to, range.from)} ({span(range.to - range.from)})</span>
      </div>
      <div ref={box} class="strip">
        <svg
          width={width} height="116" role="img"
          aria-label={`Timeline of ${visible.length} spans and ${marks.length} marks; the table below has them all.`}
          onPointerDown={(event) => ((drag.current = at(event)), event.currentTarget.setPointerCapture(event.pointerId))}
          onPointerMove={(event) => (pointer.set(at(event)), drag.current !== null && setBrush([drag.current, at(event)]))}
          onPointerLeave={() => pointer.set(null)}
          onPointerUp={(event) => {
            const from = drag.current;
            drag.current = null;
            setBrush(null);
            const to = at(event);
            if (from !== null && Math.abs(x(to) - x(from)) > 8) set(Math.min(from, to), Math.max(from, to));
            // The strip holds the pointer, so no click comes to what is below it; and there may be thousands of these.
            else setPicked(document.elementFromPoint(event.clientX, event.clientY)?.querySelector(":scope > title")?.textContent ?? "");
          }}
        >
          <defs>
            <pattern id="lost-lines" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <rect width="6" height="6" class="k-lost" /><rect width="2" height="6" class="hatch-line" />
            </pattern>
          </defs>
          {ticks(range.from, range.to, Math.max(2, width / 110), ahead).map((tick) => (
            <g key={tick} class="tick">
              <line x1={x(tick)} x2={x(tick)} y1="18" y2="96" />
              <text x={Math.min(Math.max(x(tick), 26), width - 26)} y="112" text-anchor="middle">{days ? moment(tick).slice(5, 10) : moment(tick).slice(11, range.to - range.from > 900 ? 16 : 19)}</text>
            </g>
          ))}
          {whole.generations.filter((each) => each.to > range.from && each.from < range.to).map((each) => {
            const [a, b] = [Math.max(0, x(each.from)), Math.min(width, x(each.to))];
            return b - a > 30 && (
              <text key={each.number} x={a + 4} y="13" class="generation">{b - a > 110 ? `generation ${each.number}` : each.number}</text>
            );
          })}
          <g>
            {visible.map((each) => (
              <rect
                key={`${each.from}${each.kind}`} x={x(each.from)} y="34" height="34" class={`k-${each.kind}`}
                width={Math.max(x(each.to) - x(each.from), each.kind === "lost" ? 2 : 0.5)}
              >
                <title>{each.title}</title>
              </rect>
            ))}
            {apart(marks, { ...range, width }, MARK_PX).map((mark) => (
              <text key={`${mark.at}${mark.kind}`} x={Math.min(Math.max(x(mark.at), 6), width - 6)} y={ABOVE.has(mark.kind) ? 29 : 88} class={`mark m-${mark.kind}`} text-anchor="middle">
                {GLYPHS[mark.kind]}<title>{mark.title}</title>
              </text>
            ))}
          </g>
          <Cursor pointer={pointer} range={{ ...range, width }} height={96} />
          {brush && <rect class="brush" x={Math.min(x(brush[0]), x(brush[1]))} width={Math.abs(x(brush[1]) - x(brush[0]))} y="18" height="78" />}
        </svg>
      </div>
      <ul class="legend">
        {(["waits", "runs", "lost", "unheard"] as const).filter((kind) => kind !== "unheard" || whole.spans.some((each) => each.kind === kind)).map((kind) => <li key={kind}><i class={`key k-${kind}`} />{KINDS[kind]}</li>)}
        {(["exit", "hang", "relaunch", "step", "save", "end"] as const).map((kind) => <li key={kind}><span class={`mark m-${kind}`} aria-hidden="true">{GLYPHS[kind]}</span>{MARK_WORDS[kind]}</li>)}
      </ul>
      {picked && <p class="picked" role="status">{picked}</p>}
      <Charts job={job} query={query} series={series} whole={whole} range={{ ...range, width }} pointer={pointer} now={now} />
      <details open={tabled} onToggle={(event) => setTabled(event.currentTarget.open)}>
        <summary>As a table</summary>
        {tabled && <Table
          caption="Spans and marks of the timeline"
          rows={[...visible.map((each) => ({ at: each.from, what: KINDS[each.kind], took: each.to - each.from, title: each.title })),
            ...marks.map((mark) => ({ at: mark.at, what: `${GLYPHS[mark.kind]} ${MARK_WORDS[mark.kind]}`, took: null, title: mark.title }))].sort((a, b) => a.at - b.at)}
          id={(row, index) => `${row.at}-${index}`}
          columns={[
            { title: "From", cell: (row) => clock(row.at, now) },
            { title: "What", cell: (row) => row.what, whole: true },
            { title: "Took", right: true, whole: true, cell: (row) => (row.took === null ? "" : span(row.took)) },
            { title: "In words", wide: true, cell: (row) => row.title },
          ]}
        />}
      </details>
    </div>
  );
}

const iso = (seconds: number): string => new Date(Math.round(seconds) * 1000).toISOString().replace(".000Z", "Z");

function chosen(query: URLSearchParams, from: number, to: number): { from: number; to: number; all: boolean } {
  const last = RANGES.find(([name]) => name === query.get("last"))?.[1];
  if (last) return { from: Math.max(from, to - last), to, all: false };
  const [a, b] = [epoch(query.get("from")), epoch(query.get("to"))];
  return a !== null && b !== null && b > a ? { from: a, to: b, all: false } : { from, to, all: true };
}

/** Seconds that are shown, by and large. */
function shownFor(job: Job, query: URLSearchParams): number {
  const now = Date.now() / 1000;
  const { from, to } = chosen(query, epoch(job.createTime) ?? now, now);
  return to - from;
}

function useWidth(): [(element: HTMLElement | null) => void, number] {
  const [element, setElement] = useState<HTMLElement | null>(null);
  const [width, setWidth] = useState(600);
  useEffect(() => {
    if (!element) return undefined;
    const watcher = new ResizeObserver(([entry]) => entry && setWidth(Math.max(200, entry.contentRect.width)));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, [element]);
  return [setElement, width];
}
