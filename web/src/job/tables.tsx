import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { answer, bindings, exitRows, goesOn, hangOutcome, PHASES, phasesInWords, rankRows, recoverySummary, tally } from "../core/gang.ts";
import { hostPath, jobPath } from "../core/route.ts";
import type { RankRow } from "../core/gang.ts";
import type { Hang, Job, Members, Recovery, Worker } from "../core/types/job.ts";
import { count, ended, epoch, jsonText, ranges, short, span } from "../core/words.ts";
import { Command, Empty, Loading, Problem, Table, Text, Time, Windowed } from "../ui/bits.tsx";
import { useNow } from "../ui/hooks.ts";
import type { Loaded } from "../ui/hooks.ts";
import { setQuery } from "../ui/router.ts";
import { Stacks } from "./stacks.tsx";

const MOST_BOUND = 64;

/** Each rank: where it is, and how its process of this generation ended; those that are unlike the rest first. */
export function Ranks({ job, members: { data, error, again } }: { job: Job; members: Loaded<Members> }): JSX.Element {
  const rows = useMemo(() => (data ? rankRows(job, data.workers) : []), [job, data]);
  if (!data) return error ? <Problem error={error} again={again} /> : <Loading />;
  if (!rows.length) return <Empty>No rank has a host yet.{job.waitReason && <> The job waits: <Text of={job.waitReason} /></>}</Empty>;
  const shells = job.jobSpec["enableWebAccess"] === true && !ended(job.state);
  return (
    <>
      <Tally of={rows} />
      <div class="panel ranks" role="table" aria-label="Ranks" aria-rowcount={rows.length + 1}>
        <div class="row head" role="row">
          {["Rank", "Worker", "Host", "Pid", "State"].map((title) => <span key={title} role="columnheader">{title}</span>)}
        </div>
        <Windowed role="rowgroup" count={rows.length} height={36} label="Ranks" class={rows.length > 14 ? "tall" : "short"} row={(index) => {
          const row = rows[index];
          if (!row) return <div key={index} />;
          const { rank, worker, pid, exit } = row;
          return (
            <div class="row" role="row" key={rank} aria-rowindex={index + 2}>
              <span role="cell"><a href={jobPath(job.id, `?tab=logs&rank=${rank}`)}>rank {rank}</a>{shells && !exit && <>{" "}<a href={jobPath(job.id, `?tab=shell&rank=${rank}`)} aria-label={`Shell beside rank ${rank}`}>shell</a></>}</span>
              <span role="cell"><Text of={worker.name} /></span>
              <span role="cell">{worker.host ? <a href={hostPath(worker.host)}><Text of={worker.host} /></a> : "–"}</span>
              <span role="cell">{pid ?? "–"}</span>
              <span role="cell" class={row.bad ? "bad" : ""}><Text of={row.state} /></span>
            </div>
          );
        }} />
      </div>
      <Bound job={job} workers={data.workers} />
    </>
  );
}

const MOST_STATES = 8;
/** More parts of what ranks there are would be a list of its own, which the table is. */
const MOST_PARTS = 6;

/** How many ranks are in each state, the fewest first; nothing where all are in one. */
function Tally({ of }: { of: readonly RankRow[] }): JSX.Element | null {
  const found = [...tally(of)].sort((a, b) => a[1].length - b[1].length);
  if (found.length < 2) return null;
  return (
    <dl class="panel said">
      {found.slice(0, MOST_STATES).map(([state, ranks]) => {
        const parts = ranges(ranks).split(",");
        const shown = parts.slice(0, MOST_PARTS).join(", ") + (parts.length > MOST_PARTS ? ", …" : "");
        return <div key={state}><dt>{count(ranks.length, "rank")}</dt><dd><Text of={`${state}: ${shown}`} /></dd></div>;
      })}
      {found.length > MOST_STATES && <div><dt>And</dt><dd>{found.length - MOST_STATES} more states, below</dd></div>}
    </dl>
  );
}

/** The cores, memory and network cards that ranks are bound to; nothing where the job asks for no binding. */
function Bound({ job, workers }: { job: Job; workers: readonly Worker[] }): JSX.Element | null {
  const bound = bindings(workers);
  if (!bound.length) return null;
  return (
    <details>
      <summary>What ranks are bound to</summary>
      <dl class="said">{bound.slice(0, MOST_BOUND).map(({ rank, words }) => <div key={rank}><dt>Rank {rank}</dt><dd><Text of={words} /></dd></div>)}</dl>
      {bound.length > MOST_BOUND && <p class="soft">And {bound.length - MOST_BOUND} more: <Command line={`holdfast job show ${job.id} -o wide`} /></p>}
    </details>
  );
}

/** How ranks ended, those that ended alike on one row. */
export function Exits({ job, all }: { job: Job; all: boolean }): JSX.Element {
  const now = useNow(60);
  const groups = exitRows(job.exitGroups);
  const rest = !all && <p class="soft">Those of the newest generations. <button type="button" onClick={() => setQuery({ exits: "all" })}>Show all {job.generation} generations</button></p>;
  if (!groups.length) return <><Empty>{all ? "No rank has ended." : "No rank has ended in these generations."}</Empty>{rest}</>;
  return (
    <div class="panel">
      {rest}
      <Table
        caption="Exits" rows={groups} id={(_, index) => index}
        columns={[
          { title: "Gen", right: true, cell: (row) => row.generation },
          { title: "Rank", cell: (row) => row.ranks },
          { title: "Ended", cell: (row) => <Time at={row.ended} now={now} /> },
          { title: "Reason", cell: (row) => <span class={["COMPLETED", "STOPPED"].includes(row.reason) ? "" : "bad"}>{row.reason}</span> },
          { title: "Message", wide: true, cell: (row) => <><Text of={row.text} />{row.late && <div class="soft">known later: <Text of={row.late} /></div>}</> },
        ]}
      />
      {job.error && job.error.details.length > 0 && (
        <>
          <h2>Last words</h2>
          <pre class="details" tabIndex={0}>{job.error.details.map((line, index) => <div key={index}><Text of={line} /></div>)}</pre>
        </>
      )}
    </div>
  );
}

/** What interrupted the job, and what was done about it. */
export function Recoveries({ job }: { job: Job }): JSX.Element {
  const now = useNow(60);
  if (!job.recoveries.length) return <Empty>Nothing has interrupted this job.</Empty>;
  const longest = Math.max(...job.recoveries.map(spent));
  return (
    <div class="panel">
      <p>{recoverySummary(job.recoveries)}</p>
      <ul class="legend">{PHASES.map((phase) => <li key={phase}><i class={`key p-${phase}`} />{phase === "catchUp" ? "catch up" : phase}</li>)}</ul>
      <Table
        caption="Recoveries" rows={[...job.recoveries].reverse()} id={(row) => `${row.attempt}-${row.generation}-${row.startedAt}`}
        columns={[
          ...(job.recoveries.some((each) => each.attempt > 1) ? [{ title: "Attempt", right: true, cell: (row: Recovery) => row.attempt }] : []),
          { title: "Gen", right: true, cell: (row) => row.generation },
          { title: "Started", cell: (row) => <Time at={row.startedAt} now={now} /> },
          { title: "Lost", right: true, cell: (row) => (row.lostSeconds === null ? "going on" : short(row.lostSeconds)) },
          { title: "Reason", cell: (row) => (row.endReason === "HANG" && job.hangs.length ? <a href={jobPath(job.id, "?tab=hangs")}>HANG</a> : row.endReason || "-") },
          { title: "Caused by", wide: true, cell: (row) => <Cause of={row} job={job} /> },
          { title: "Answer", cell: answer },
          { title: "Time spent", wide: true, cell: (row) => <><PhaseBar of={row} longest={longest} />{phasesInWords(row) || "-"}</> },
        ]}
      />
    </div>
  );
}

const spent = (recovery: Recovery): number => PHASES.reduce((sum, phase) => sum + (recovery.phases[phase] ?? 0), 0);

/** Where the time of a recovery went, as long as its share of the longest one's. */
function PhaseBar({ of, longest }: { of: Recovery; longest: number }): JSX.Element | null {
  if (!longest) return null;
  let at = 0;
  return (
    <svg class="phases" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">
      {PHASES.map((phase) => {
        const x = at;
        const width = (1000 * (of.phases[phase] ?? 0)) / longest;
        at += width;
        return width > 0 && <rect key={phase} class={`p-${phase}`} x={x} width={width} y="0" height="10" />;
      })}
    </svg>
  );
}

/** Who it was, with a way to their output or page. */
function Cause({ of, job }: { of: Recovery; job: Job }): JSX.Element {
  const ranks = of.related?.ranks ?? [];
  const before = Math.max(1, of.generation - 1);
  return (
    <>
      <Text of={of.endRelatedTask || "-"} />
      {ranks.slice(0, 4).map((each) => <>{" "}<a key={each.rank} href={jobPath(job.id, `?tab=logs&rank=${each.rank}&generation=${before}`)}>output of rank {each.rank}</a></>)}
      {of.related?.host && <>{" "}<a href={hostPath(of.related.host)}><Text of={of.related.host} /></a></>}
    </>
  );
}

/** Suspicions from the first notice to the end, the newest first. */
export function Hangs({ job }: { job: Job }): JSX.Element {
  if (!job.hangs.length) {
    return (
      <div class="panel">
        <Empty>{ended(job.state) ? "It never hung." : "It has not hung."}</Empty>
        {job.state === "JOB_STATE_RUNNING" && <Stacks id={job.id} now />}
      </div>
    );
  }
  return <div class="hangs">{job.state === "JOB_STATE_RUNNING" && <div class="panel"><Stacks id={job.id} now /></div>}{[...job.hangs].reverse().map((hang) => <OneHang key={hang.number} hang={hang} job={job} />)}</div>;
}

function OneHang({ hang, job }: { hang: Hang; job: Job }): JSX.Element {
  const now = useNow(goesOn(job, hang) ? 1 : 60);
  const since = epoch(hang.since) ?? now;
  const noticed = epoch(hang.noticedAt) ?? now;
  const judged = epoch(hang.judgedAt);
  return (
    <article class="panel hang">
      <h2>Hang {hang.number} <span class="soft">generation {hang.generation}</span> <strong class={goesOn(job, hang) ? "bad" : ""}>{hangOutcome(job, hang)}</strong></h2>
      <p><Text of={hang.sentence} /></p>
      <dl class="said">
        <div><dt>Stood still since</dt><dd><Time at={hang.since} now={now} /></dd></div>
        <div><dt>Noticed</dt><dd>after {span(noticed - since)}</dd></div>
        {judged !== null && <div><dt>Decided</dt><dd>after {span(judged - noticed)} more</dd></div>}
        {goesOn(job, hang) && <div><dt>Lasts</dt><dd>{span(now - since)}</dd></div>}
        <div><dt>Rule</dt><dd>{hang.rule}</dd></div>
        {hang.suspectRanks.length > 0 && (
          <div><dt>Suspect</dt><dd>{hang.suspectRanks.slice(0, 8).map((each, index) => (
            <>{index ? ", " : ""}<a href={jobPath(job.id, `?tab=logs&rank=${each.rank}&generation=${hang.generation}`)}><Text of={`${each.worker} rank ${each.rank}`} /></a></>
          ))}{hang.suspectRanks.length > 8 ? ` and ${hang.suspectRanks.length - 8} more` : ""}</dd></div>
        )}
        {hang.step !== null && <div><dt>Step</dt><dd>{hang.step}</dd></div>}
        {hang.note && <div><dt>Note</dt><dd><Text of={hang.note} /></dd></div>}
      </dl>
      {hang.stacks && <pre class="details" tabIndex={0} aria-label="What the stacks say">{hang.stacks.split("\n").map((line, index) => <div key={index}><Text of={line} /></div>)}</pre>}
      <Stacks id={job.id} hang={hang.number} />
    </article>
  );
}

/** The job file as it was submitted. */
export function Spec({ job }: { job: Job }): JSX.Element {
  const file = { displayName: job.displayName, labels: job.labels, annotations: job.annotations, jobSpec: job.jobSpec };
  return <pre class="panel details spec" tabIndex={0}>{jsonText(file)}</pre>;
}
