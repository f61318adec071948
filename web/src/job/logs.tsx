import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { failure } from "../core/api.ts";
import type { ApiError } from "../core/api.ts";
import { gang } from "../core/gang.ts";
import { Lines } from "../core/lines.ts";
import type { Line } from "../core/lines.ts";
import { listed } from "../core/ranks.ts";
import { readOn } from "../core/resume.ts";
import { jobPath, withQuery } from "../core/route.ts";
import type { Job } from "../core/types/job.ts";
import type { LogChunk } from "../core/types/records.ts";
import { count, ended } from "../core/words.ts";
import { Empty, Loading, Problem, Text, Windowed } from "../ui/bits.tsx";
import { useSeen } from "../ui/hooks.ts";
import { setQuery } from "../ui/router.ts";
import { saveFile } from "../ui/save.ts";

/** Lines that the page keeps; older ones are on the hosts. */
const MOST = 20_000;
const TAILS: readonly string[] = ["2000", "10000", String(MOST)];

/** Bytes that are read before and after a place in a stream. */
const AROUND = 128 * 1024;
/** Between two drawings of lines that go on coming. */
const DRAW_MS = 100;
/** Lines of a search on the hosts that are shown. */
const FOUND = 5000;

/** Output of ranks: the newest lines and what is written, what a search on the hosts finds, or the lines around a place. */
export function Logs({ id, job, query }: { id: string; job: Job | null; query: URLSearchParams }): JSX.Element {
  const rank = query.get("rank") ?? "0";
  const generation = query.get("generation") ?? "";
  const find = query.get("find") ?? "";
  const grep = (query.get("grep") ?? "").slice(0, 1000);
  const part = grep ? null : partOf(query);
  const newest = !grep && !part;
  const tail = TAILS.find((each) => each === query.get("lines")) ?? TAILS[0] ?? "";
  const longer = TAILS[TAILS.indexOf(tail) + 1];
  const over = !!job && ended(job.state);
  // One that is read ahead of its job is followed, which does no harm to one that has ended.
  const ahead = useRef(!job);
  const follow = newest && query.get("follow") !== "no" && (ahead.current || !over);
  const ranks = job ? gang(job.jobSpec).ranks : 0;
  const launches = job?.generation ?? 0;
  const wrong = rank !== "all" && !/^\d+([,-]\d+)*$/.test(rank) ? "Ranks are numbers, such as 0 or 0,3 or 0-7, or all." : "";
  const { kept, error, heard, whole, again } = useLog(id, wrong ? null : asked({ rank, generation, follow, tail, grep, part }), grep ? FOUND : MOST);
  const [pinned, setPinned] = useState(true);
  const [only, setOnly] = useState(false);
  const needle = find.toLowerCase();
  const all = kept.shown;
  // Reading began within a line, of which the rest is shown.
  const lines = part && part.from > 0 && all[0]?.offset === part.from ? all.slice(1) : all;
  const hits = needle ? lines.filter((line) => line.text.toLowerCase().includes(needle)) : [];
  const shown = needle && only ? hits : lines;
  const most = grep && full(kept, FOUND) ? "The first " : "";
  const several = rank === "all" || /[,-]/.test(rank);
  const first = newest && !several ? lines.find((line) => !line.problem) : undefined;
  const place = ({ rank: of, generation: launch, stream, offset }: Line): string =>
    jobPath(id, withQuery(new URLSearchParams(), { tab: "logs", rank: String(of), generation: String(launch), stream, at: String(offset) }));
  const hidden = { grep: "", at: "", stream: "" };
  return (
    <div class="panel logs">
      <form class="filters" onSubmit={(event) => (event.preventDefault(), find && setQuery({ ...hidden, grep: find, find: "" }))}>
        <label>Rank <input size={6} value={rank} onChange={(event) => setQuery({ rank: event.currentTarget.value.trim(), at: "", stream: "" })} list="ranks" aria-invalid={!!wrong} /></label>
        <datalist id="ranks"><option value="all" />{Array.from({ length: Math.min(ranks, 64) }, (_, each) => <option key={each} value={String(each)} />)}</datalist>
        <label>Generation <select value={generation} onChange={(event) => setQuery({ generation: event.currentTarget.value, at: "", stream: "" })}>
          <option value="">newest</option>
          {Array.from({ length: Math.min(launches, 200) }, (_, each) => <option key={each} value={String(launches - each)}>{launches - each}</option>)}
        </select></label>
        <input type="search" placeholder="Find in these lines; Enter: in all output" aria-label="Find in these lines" value={find} onInput={(event) => setQuery({ find: event.currentTarget.value })} />
        {needle && <label class="check"><input type="checkbox" checked={only} onChange={(event) => setOnly(event.currentTarget.checked)} />only these {hits.length.toLocaleString("en")}</label>}
        <button type="submit" disabled={!find}>Search all output</button>
        {newest && job && !over && <label class="check"><input type="checkbox" checked={follow} onChange={(event) => setQuery({ follow: event.currentTarget.checked ? "" : "no" })} />follow</label>}
        <button type="button" onClick={() => saveFile(`${id}-rank-${rank}.log`, shown.map((line) => `${line.text}\n`).join(""))} disabled={!shown.length}>Save these lines</button>
      </form>
      {wrong && <p class="refused" role="alert">{wrong}</p>}
      {grep && (
        <p role="status">
          {whole || most ? `${most}${count(lines.filter((line) => !line.problem).length, "line")} with ` : "Looking on the hosts for lines with "}
          <strong><Text of={grep} /></strong>. A line's number leads to what is around it.{" "}
          <button type="button" onClick={() => setQuery(hidden)}>Back to the newest lines</button>
        </p>
      )}
      {part && (
        <p class="ranges">
          <button type="button" disabled={part.from === 0} onClick={() => setQuery({ at: String(Math.max(0, part.at - 2 * AROUND)) })}>Earlier</button>
          <button type="button" onClick={() => setQuery({ at: String(part.at + 2 * AROUND) })}>Later</button>
          <button type="button" onClick={() => setQuery(hidden)}>Newest lines</button>
          <span class="soft">{part.stream.toLowerCase()} of rank {rank} around byte {part.at.toLocaleString("en")}</span>
        </p>
      )}
      {error && <Problem error={error} again={again} />}
      {!shown.length && !error && !wrong && (whole || lines.length || (newest && heard)
        ? <Empty>{grep || lines.length ? "No line has that." : part ? "The output ends before." : whole ? "Nothing was printed." : "Nothing was printed yet."}</Empty>
        : <Loading />)}
      {shown.length > 0 && (
        <>
          {newest && kept.lines.length + kept.dropped >= Number(tail) && (
            <p class="soft">
              The newest {Number(tail).toLocaleString("en")} lines of each rank.{" "}
              {longer && <button type="button" onClick={() => setQuery({ lines: longer })}>Read {Number(longer).toLocaleString("en")}</button>}{" "}
              {first && <a href={place(first)}>Earlier lines</a>}
            </p>
          )}
          {newest && kept.dropped > 0 && <p class="soft">{kept.dropped.toLocaleString("en")} earlier lines are no longer kept in this page.</p>}
          <Windowed
            count={shown.length} height={20} label={`Output of rank ${rank}`} class="console" pinned={newest && pinned && !needle} unpin={() => setPinned(false)}
            begin={part ? Math.max(0, shown.findIndex((line) => line.offset >= part.at) - 5) : 0}
            row={(index) => {
              const line = shown[index] as Line;
              const hit = part ? line.offset === part.at : !!needle && !only && line.text.toLowerCase().includes(needle);
              return <LogLine key={line.number} line={line} several={several} hit={hit} to={grep && !line.problem ? place(line) : ""} />;
            }}
          />
          {newest && !pinned && <button type="button" class="end" onClick={() => setPinned(true)}>Go to the newest</button>}
        </>
      )}
    </div>
  );
}

function LogLine({ line, several, hit, to }: { line: Line; several: boolean; hit: boolean; to: string }): JSX.Element {
  return (
    <div class={`line ${line.stream === "STDERR" ? "stderr" : ""} ${line.problem ? "told" : ""} ${hit ? "hit" : ""}`}>
      {to ? <a class="from" href={to} aria-label={`What is around this line of rank ${line.rank}`}>{line.rank}</a> : several && <span class="from">{line.rank}</span>}
      <bdi>{line.runs.map((run, index) => (run.look ? <span key={index} class={run.look}>{run.text}</span> : run.text))}</bdi>
    </div>
  );
}

interface Part {
  stream: string;
  at: number;
  from: number;
}

function partOf(query: URLSearchParams): Part | null {
  const [at, stream, rank] = [query.get("at") ?? "", query.get("stream") ?? "STDOUT", query.get("rank") ?? "0"];
  if (!/^\d{1,15}$/.test(at) || !/^\d+$/.test(rank) || !["STDOUT", "STDERR"].includes(stream)) return null;
  return { stream, at: Number(at), from: Math.max(0, Number(at) - AROUND) };
}

function asked(of: { rank: string; generation: string; follow: boolean; tail: string; grep: string; part: Part | null }): string {
  const found = new URLSearchParams();
  if (of.grep) (found.set("contains", of.grep), found.set("ignoreCase", "true"));
  else if (of.part) (found.set("stream", of.part.stream), found.set("offset", String(of.part.from)), found.set("endOffset", String(of.part.at + AROUND)));
  else found.set("tailLines", of.tail);
  if (of.rank !== "all") found.set("rank", listed(of.rank));
  if (of.generation) found.set("generation", of.generation);
  if (of.follow && !of.generation) found.set("follow", "true");
  return found.toString();
}

/** Whether a search has all that is shown of it. */
const full = (kept: Lines, most: number): boolean => kept.lines.length >= most || kept.dropped > 0;

interface Log {
  kept: Lines;
  error: ApiError | null;
  /** The controller has begun to answer, be it that there is nothing. */
  heard: boolean;
  /** All that there is was read. */
  whole: boolean;
  again: () => void;
}

function useLog(id: string, query: string | null, most: number): Log {
  const held = useRef(new Lines(most));
  const [, draw] = useState(0);
  const [error, setError] = useState<ApiError | null>(null);
  const [heard, setHeard] = useState(false);
  const [whole, setWhole] = useState(false);
  const [round, setRound] = useState(0);
  const seen = useSeen() || whole;
  useLayoutEffect(() => {
    if (!seen) return undefined;
    held.current = new Lines(most);
    setError(null);
    setHeard(false);
    setWhole(false);
    if (query === null) return undefined;
    const ended = new AbortController();
    let frame: ReturnType<typeof setTimeout> | undefined;
    let drawn = -DRAW_MS;
    const redraw = (): void => {
      // What comes first is shown at once, and what follows a few times a second.
      frame ??= setTimeout(() => {
        frame = undefined;
        drawn = performance.now();
        draw((now) => now + 1);
      }, Math.max(0, drawn + DRAW_MS - performance.now()));
    };
    draw((now) => now + 1);
    readOn<LogChunk>({
      path: () => `/v1/jobs/${encodeURIComponent(id)}:logs?${query}`,
      begun: () => {
        // Lines from before a cut stay until they come again.
        held.current = new Lines(most);
        setHeard(true);
        setError(null);
      },
      take: (chunk) => {
        held.current.add(chunk);
        redraw();
        return most === FOUND && full(held.current, most);
      },
      cut: setError,
    }, ended.signal).then(
      () => {
        held.current.flush();
        redraw();
        setWhole(true);
      },
      (problem: unknown) => !ended.signal.aborted && setError(failure(problem)),
    );
    return () => (ended.abort(), clearTimeout(frame));
  }, [id, query, round, seen]);
  return { kept: held.current, error, heard, whole, again: () => setRound((now) => now + 1) };
}
