import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, lines } from "../core/api.ts";
import { gang } from "../core/gang.ts";
import { Lines } from "../core/lines.ts";
import type { Line } from "../core/lines.ts";
import { listed } from "../core/ranks.ts";
import type { Job, LogChunk } from "../core/types.ts";
import { ended } from "../core/words.ts";
import { Empty, Loading, Problem, Windowed } from "../ui/bits.tsx";
import { useSeen } from "../ui/hooks.ts";
import { setQuery } from "../ui/router.ts";
import { saveFile } from "../ui/save.ts";

/** Lines that the page keeps; older ones are on the hosts. */
const MOST = 20_000;
const TAILS: readonly string[] = ["2000", "10000", String(MOST)];

/** Output of ranks: the newest lines, then what is written. */
export function Logs({ job, query }: { job: Job; query: URLSearchParams }): JSX.Element {
  const rank = query.get("rank") ?? "0";
  const generation = query.get("generation") ?? "";
  const find = query.get("find") ?? "";
  const tail = TAILS.find((each) => each === query.get("lines")) ?? TAILS[0] ?? "";
  const longer = TAILS[TAILS.indexOf(tail) + 1];
  const follow = query.get("follow") !== "no" && !ended(job.state);
  const { ranks } = gang(job.jobSpec);
  const wrong = rank !== "all" && !/^\d+([,-]\d+)*$/.test(rank) ? "Ranks are numbers, such as 0 or 0,3 or 0-7, or all." : "";
  const { kept, error, over, again } = useLog(job.id, wrong ? null : asked(rank, generation, follow, tail));
  const [pinned, setPinned] = useState(true);
  const [only, setOnly] = useState(false);
  const needle = find.toLowerCase();
  const hits = needle ? kept.lines.filter((line) => line.text.toLowerCase().includes(needle)) : [];
  const shown = needle && only ? hits : kept.lines;
  const several = rank === "all" || /[,-]/.test(rank);
  return (
    <div class="panel logs">
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>Rank <input size={6} value={rank} onChange={(event) => setQuery({ rank: event.currentTarget.value.trim() })} list="ranks" aria-invalid={!!wrong} /></label>
        <datalist id="ranks"><option value="all" />{Array.from({ length: Math.min(ranks, 64) }, (_, each) => <option key={each} value={String(each)} />)}</datalist>
        <label>Generation <select value={generation} onChange={(event) => setQuery({ generation: event.currentTarget.value })}>
          <option value="">newest</option>
          {Array.from({ length: Math.min(job.generation, 200) }, (_, each) => <option key={each} value={String(job.generation - each)}>{job.generation - each}</option>)}
        </select></label>
        <input type="search" placeholder="Find in these lines" aria-label="Find in these lines" value={find} onInput={(event) => setQuery({ find: event.currentTarget.value })} />
        {needle && <label class="check"><input type="checkbox" checked={only} onChange={(event) => setOnly(event.currentTarget.checked)} />only these {hits.length.toLocaleString("en")}</label>}
        {!ended(job.state) && <label class="check"><input type="checkbox" checked={follow} onChange={(event) => setQuery({ follow: event.currentTarget.checked ? "" : "no" })} />follow</label>}
        <button type="button" onClick={() => saveFile(`${job.id}-rank-${rank}.log`, shown.map((line) => `${line.text}\n`).join(""))} disabled={!shown.length}>Save these lines</button>
      </form>
      {wrong && <p class="refused" role="alert">{wrong}</p>}
      {error && <Problem error={error} again={again} />}
      {!shown.length && !error && !wrong && (over ? <Empty>{needle ? "None of the lines that were read has that." : "Nothing was printed."}</Empty> : <Loading />)}
      {shown.length > 0 && (
        <>
          {kept.lines.length + kept.dropped >= Number(tail) && (
            <p class="soft">
              The newest {Number(tail).toLocaleString("en")} lines of each rank; search looks in these.{" "}
              {longer && <button type="button" onClick={() => setQuery({ lines: longer })}>Read {Number(longer).toLocaleString("en")}</button>}
            </p>
          )}
          {kept.dropped > 0 && <p class="soft">{kept.dropped.toLocaleString("en")} earlier lines are no longer kept in this page.</p>}
          <Windowed
            count={shown.length} height={20} label={`Output of rank ${rank}`} class="console" pinned={pinned && !needle} unpin={() => setPinned(false)}
            row={(index) => <LogLine key={shown[index]?.number} line={shown[index] as Line} several={several} hit={!!needle && !only && (shown[index]?.text.toLowerCase().includes(needle) ?? false)} />}
          />
          {!pinned && <button type="button" class="end" onClick={() => setPinned(true)}>Go to the newest</button>}
        </>
      )}
    </div>
  );
}

function LogLine({ line, several, hit }: { line: Line; several: boolean; hit: boolean }): JSX.Element {
  return (
    <div class={`line ${line.stream === "STDERR" ? "stderr" : ""} ${line.problem ? "told" : ""} ${hit ? "hit" : ""}`}>
      {several && <span class="from">{line.rank}</span>}
      <bdi>{line.runs.map((run, index) => (run.look ? <span key={index} class={run.look}>{run.text}</span> : run.text))}</bdi>
    </div>
  );
}

function asked(rank: string, generation: string, follow: boolean, tail: string): string {
  const found = new URLSearchParams({ tailLines: tail });
  if (rank !== "all") found.set("rank", listed(rank));
  if (generation) found.set("generation", generation);
  if (follow && !generation) found.set("follow", "true");
  return found.toString();
}

interface Log {
  kept: Lines;
  error: ApiError | null;
  /** All that there is was read. */
  over: boolean;
  again: () => void;
}

function useLog(id: string, query: string | null): Log {
  const held = useRef(new Lines(MOST));
  const [, draw] = useState(0);
  const [error, setError] = useState<ApiError | null>(null);
  const [over, setOver] = useState(false);
  const [round, setRound] = useState(0);
  const seen = useSeen() || over;
  useEffect(() => {
    if (!seen) return undefined;
    held.current = new Lines(MOST);
    setError(null);
    setOver(false);
    if (query === null) return undefined;
    const ended = new AbortController();
    let frame: ReturnType<typeof setTimeout> | undefined;
    const redraw = (): void => {
      frame ??= setTimeout(() => ((frame = undefined), draw((now) => now + 1)), 100);
    };
    redraw();
    lines(`/v1/jobs/${encodeURIComponent(id)}:logs?${query}`, "application/x-ndjson", ended.signal)
      .then(async (stream) => {
        for await (const line of stream) {
          if (!line) continue;
          const chunk = JSON.parse(line) as LogChunk & { error?: { message: string } };
          if (chunk.error) throw new ApiError(500, chunk.error.message);
          held.current.add(chunk);
          redraw();
        }
        held.current.flush();
        redraw();
        setOver(true);
      })
      .catch((problem: unknown) => {
        if (!ended.signal.aborted) setError(problem instanceof ApiError ? problem : new ApiError(0, "The stream was cut."));
      });
    return () => (ended.abort(), clearTimeout(frame));
  }, [id, query, round, seen]);
  return { kept: held.current, error, over, again: () => setRound((now) => now + 1) };
}
