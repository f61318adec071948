import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { failure, get } from "../core/api.ts";
import type { ApiError } from "../core/api.ts";
import { gang } from "../core/gang.ts";
import { pause } from "../core/pause.ts";
import { jobPath, withQuery } from "../core/route.ts";
import { againInMs, areaPath, axis, charts, FIRST, linePath, missing, pointAt, quantity, REST, summed } from "../core/charts.ts";
import type { Chart } from "../core/charts.ts";
import { barPath, RANGES, uprightPath } from "../core/strip.ts";
import type { Axis, Strip } from "../core/strip.ts";
import type { Job } from "../core/types/job.ts";
import type { SeriesPage } from "../core/types/records.ts";
import { clock, ended } from "../core/words.ts";
import { Command, Empty, Loading, Problem, Table, Text } from "../ui/bits.tsx";
import { usePointed } from "../ui/pointer.ts";
import type { Pointer } from "../ui/pointer.ts";
import { setQuery } from "../ui/router.ts";

const HEIGHT = 84;
/** Above the plot, for the axis' upper end. */
const TOP = 15;
const PAGES_MOST = 30;

export interface Series {
  pages: SeriesPage[];
  charts: Chart[];
  error: ApiError | null;
  again: () => void;
}

/** The job's series of the range, asked for again while the job lives; what is shown stays until its successor is there. */
export function useSeries(job: Job, query: URLSearchParams): Series & { loaded: boolean } {
  const [held, setHeld] = useState<{ pages: SeriesPage[]; error: ApiError | null; loaded: boolean }>({ pages: [], error: null, loaded: false });
  const [round, setRound] = useState(0);
  const live = !ended(job.state);
  const path = `/v1/jobs/${encodeURIComponent(job.id)}/series?${asked(query)}`;
  const last = query.get("last") ?? "";
  useEffect(() => {
    const over = new AbortController();
    const work = async (): Promise<void> => {
      let step = 0;
      for (;;) {
        if (!document.hidden) {
          try {
            const pages = await read(path, last, over.signal);
            step = pages[0]?.step ?? 0;
            setHeld({ pages, error: null, loaded: true });
          } catch (problem) {
            if (over.signal.aborted) return;
            const error = failure(problem);
            setHeld((now) => ({ ...now, error, loaded: true }));
            if (error.status === 401) return;
          }
        }
        if (!live && !document.hidden) return;
        await pause(againInMs(step), over.signal);
        if (over.signal.aborted) return;
      }
    };
    void work();
    return () => over.abort();
  }, [path, last, live, round]);
  const found = useMemo(() => charts(held.pages), [held.pages]);
  return { ...held, charts: found, again: () => setRound((now) => now + 1) };
}

function asked(query: URLSearchParams): string {
  const found = new URLSearchParams({ bands: "true", figure: [...FIRST, ...(query.get("figures") === "all" ? REST : [])].join(",") });
  const recording = query.get("recording");
  if (recording) found.set("recording", recording);
  else {
    const [from, to] = [query.get("from"), query.get("to")];
    if (from && to) (found.set("since", from), found.set("until", to));
  }
  return found.toString();
}

async function read(path: string, last: string, signal: AbortSignal): Promise<SeriesPage[]> {
  const span = RANGES.find(([name]) => name === last)?.[1];
  const since = span && !path.includes("recording=") ? `&since=${new Date(Math.floor(Date.now() / 60_000 - span / 60) * 60_000).toISOString()}` : "";
  const pages: SeriesPage[] = [];
  for (let token = ""; pages.length < PAGES_MOST; ) {
    const page = await get<SeriesPage>(`${path}${since}${token && `&pageToken=${token}`}`, signal);
    pages.push(page);
    token = page.nextPageToken;
    if (!token) break;
  }
  return pages;
}

/** Figures of the ranks below the timeline, on its axis. */
export function Charts({ job, query, series, whole, range, pointer, now }: {
  job: Job; query: URLSearchParams; series: ReturnType<typeof useSeries>; whole: Strip; range: Axis; pointer: Pointer; now: number;
}): JSX.Element {
  const { gpus, ranks } = gang(job.jobSpec);
  const last = series.pages.at(-1);
  const recordings = last?.recordings ?? [];
  const chosen = query.get("recording") ?? "";
  const all = query.get("figures") === "all";
  const words = missing(job, gpus, series.charts, last, now);
  const choose = (name: string): void => {
    const one = recordings.find((each) => each.name === name);
    setQuery({ recording: name, last: "", from: one?.since ?? "", to: one?.until ?? "" });
  };
  return (
    <section class="charts" aria-label="Charts">
      {(recordings.length > 0 || chosen || series.charts.length > 0) && (
        <div class="ranges">
          {(recordings.length > 0 || chosen) && (
            <label>Resolution <select value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
              <option value="">minutes</option>
              {[...new Set([...recordings.map((each) => each.name), ...(chosen ? [chosen] : [])])].map((name) => <option key={name} value={name}>2 s, before {name}</option>)}
            </select></label>
          )}
          <label class="check"><input type="checkbox" checked={all} onChange={(event) => setQuery({ figures: event.currentTarget.checked ? "all" : "" })} />all figures</label>
          {ranks > 1 && series.charts.length > 0 && <span class="soft">line: half of {ranks.toLocaleString("en")} ranks · dark: 8 in 10 · light: all</span>}
        </div>
      )}
      {series.error && <Problem error={series.error} again={series.again} />}
      {!series.loaded && <Loading />}
      {series.charts.map((chart) => <OneChart key={chart.figure} chart={chart} job={job} whole={whole} range={range} pointer={pointer} ranks={ranks} />)}
      {words && (series.charts.length ? <p class="soft"><Text of={words} /></p> : <Empty><Text of={words} /></Empty>)}
      {series.charts.length > 0 && (
        <details>
          <summary>Charts as a table</summary>
          <Table
            caption="Figures of the ranks within the range" rows={series.charts} id={(chart) => chart.figure}
            columns={[
              { title: "Figure", cell: (chart) => chart.title },
              ...(["least", "mean", "most", "newest"] as const).map((key) => ({
                title: { least: "Least", mean: "Mean of the middle", most: "Most", newest: "Newest" }[key], right: true,
                cell: (chart: Chart) => {
                  const value = chart.figure === "step" && key === "mean" ? null : summed(chart, range.from, range.to)[key];
                  return value === null ? "–" : quantity(value, chart.unit);
                },
              })),
              { title: "Ranks that differ", cell: (chart) => chart.odd.map((each) => each.rank).join(", ") || "–" },
            ]}
          />
          <Command line={`holdfast job series ${job.id}${chosen && ` --recording ${chosen}`} -o csv`} />
        </details>
      )}
    </section>
  );
}

function OneChart({ chart, job, whole, range, pointer, ranks }: { chart: Chart; job: Job; whole: Strip; range: Axis; pointer: Pointer; ranks: number }): JSX.Element {
  const { from, to, width } = range;
  const [low, high] = axis(chart);
  const x = (at: number): number => (width * (at - from)) / (to - from);
  const at = (index: number): number => {
    const begin = chart.times[index] ?? 0;
    const middle = begin + chart.step / 2;
    // The middle of a minute that is seen in part may be out of sight.
    return begin < to && begin + chart.step > from ? Math.min(Math.max(x(middle), 4), width - 4) : x(middle);
  };
  const y = (value: number): number => HEIGHT - 3 - ((HEIGHT - 3 - TOP) * (value - low)) / (high - low);
  const { least, low: tenth, middle, high: nine, most } = chart.bands;
  const alone = ranks < 2;
  const sum = summed(chart, from, to);
  const said = sum.newest === null ? "nothing known in this range" : `newest ${quantity(sum.newest, chart.unit)}, ${quantity(sum.least ?? 0, chart.unit)} to ${quantity(sum.most ?? 0, chart.unit)}`;
  return (
    <figure class="chart">
      <figcaption>
        <strong>{chart.title}</strong> <Reading chart={chart} pointer={pointer} otherwise={said} alone={alone} />
        {chart.odd.map((each, index) => (
          <a key={each.rank} class={`oddly o-${index}`} href={jobPath(job.id, withQuery(new URLSearchParams(), { tab: "logs", rank: String(each.rank) }))}>rank {each.rank}</a>
        ))}
      </figcaption>
      <svg
        width={width} height={HEIGHT} role="img" aria-label={`${chart.title}: ${said}; the table below has the numbers.`}
        onPointerMove={(event) => pointer.set(from + ((to - from) * (event.clientX - event.currentTarget.getBoundingClientRect().left)) / width)}
        onPointerLeave={() => pointer.set(null)}
      >
        <line class="grid" x1="0" x2={width} y1={y(high)} y2={y(high)} />
        <line class="grid" x1="0" x2={width} y1={y(low)} y2={y(low)} />
        {!alone && <path class="band" d={areaPath(least, most, at, y)} />}
        {!alone && <path class="band" d={areaPath(tenth, nine, at, y)} />}
        <path class="away" d={barPath(whole.spans.filter((each) => each.kind === "lost"), range, HEIGHT)} />
        <path class="boundary" d={uprightPath(whole.generations.map((each) => each.from), range, 0, HEIGHT)} />
        <path class="hung" d={uprightPath(whole.marks.filter((each) => each.kind === "hang").map((each) => each.at), range, 0, HEIGHT)} />
        <path class="saved" d={uprightPath(whole.marks.filter((each) => each.kind === "save").map((each) => each.at), range, HEIGHT - 8, HEIGHT)} />
        <path class="middle" d={linePath(middle, at, y)} />
        {chart.odd.map((each, index) => <path key={each.rank} class={`odd o-${index}`} d={linePath(each.values, at, y)} />)}
        <text x="3" y={TOP - 4}>{quantity(high, chart.unit)}</text>
        <text x="3" y={HEIGHT - 6}>{quantity(low, chart.unit)}</text>
        <Cursor pointer={pointer} range={range} height={HEIGHT} />
      </svg>
    </figure>
  );
}

/** What the figure was where the pointer is. */
function Reading({ chart, pointer, otherwise, alone }: { chart: Chart; pointer: Pointer; otherwise: string; alone: boolean }): JSX.Element {
  const at = usePointed(pointer);
  if (at === null) return <span class="soft">{otherwise}</span>;
  const index = pointAt(chart, at);
  const value = chart.bands.middle[index] ?? null;
  const [least, most] = [chart.bands.least[index] ?? value, chart.bands.most[index] ?? value];
  const spread = !alone && least !== most ? ` (${quantity(least ?? 0, chart.unit)} to ${quantity(most ?? 0, chart.unit)})` : "";
  return <span class="soft">{clock(at, Date.now() / 1000)}: {value === null ? "unknown" : `${quantity(value, chart.unit)}${spread}`}</span>;
}

/** A line where the pointer is, in each picture of the axis. */
export function Cursor({ pointer, range, height }: { pointer: Pointer; range: Axis; height: number }): JSX.Element | null {
  const at = usePointed(pointer);
  if (at === null || at < range.from || at > range.to) return null;
  const x = (range.width * (at - range.from)) / (range.to - range.from);
  return <line class="cursor" x1={x} x2={x} y1="0" y2={height} />;
}
