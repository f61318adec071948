import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { failure, fails, get, withdraws } from "../core/api.ts";
import type { ApiError } from "../core/api.ts";
import { foldedList, lastWord, lean, ran, steps } from "../core/gang.ts";
import { onChange } from "../core/live.ts";
import { pause } from "../core/pause.ts";
import { jobPath } from "../core/route.ts";
import type { JobRow } from "../core/types/job.ts";
import { age, ended, epoch, span } from "../core/words.ts";
import { Empty, Loading, Problem, State, Text, Windowed } from "../ui/bits.tsx";
import { useNow, useTitle } from "../ui/hooks.ts";
import { setQuery } from "../ui/router.ts";

const PAGE = 100;
const STATES = ["active", "RUNNING", "PENDING", "QUEUED", "PAUSED", "SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"];

/** What a link narrows the list to; each is shown as a chip that takes it back. */
const NARROWED = ["owner", "project", "array"] as const;

/** Whether an array is one row: not where a state asks for some of its elements, nor where it is opened. */
export function folds(query: URLSearchParams): boolean {
  return ["", "active"].includes(query.get("state") ?? "") && !query.get("array");
}

interface Page {
  jobs: JobRow[];
  nextPageToken: string;
}

/** The address of a page of the list. */
export function listPath(query: URLSearchParams, token = "", size = PAGE): string {
  const terms = [];
  const state = query.get("state");
  if (state) terms.push(state === "active" ? "active=true" : `state=${state}`);
  for (const key of NARROWED) {
    const value = query.get(key);
    if (value) terms.push(`${key}="${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`);
  }
  const asked = new URLSearchParams({ view: "ROW", newest: "true", pageSize: String(size) });
  if (folds(query)) asked.set("onePerArray", "true");
  const search = query.get("q")?.trim();
  if (search) asked.set("search", search);
  if (terms.length) asked.set("filter", terms.join(" AND "));
  if (token) asked.set("pageToken", token);
  return `/v1/jobs?${asked}`;
}

async function getPage(path: string, asker?: AbortSignal): Promise<Page> {
  const page = await get<Page>(path, asker);
  return { ...page, jobs: page.jobs.map(lean) };
}

interface Held {
  /** What was asked for. */
  key: string;
  jobs: JobRow[] | null;
  token: string;
  error: ApiError | null;
}

/**
 * Rows of the list as far as they were scrolled to; what is shown is kept up to date in place. Those of an earlier search
 * stay until the next ones are here, and what has the focus keeps it.
 */
function useList(query: URLSearchParams): Held & { more: () => void; again: () => void } {
  const key = listPath(query);
  const [held, setHeld] = useState<Held>({ key, jobs: null, token: "", error: null });
  const [round, setRound] = useState(0);
  const size = useRef(0);
  const busy = useRef(false);
  size.current = held.key === key ? held.jobs?.length ?? 0 : 0;

  useEffect(() => {
    const ended = new AbortController();
    let due = true;
    let woken: () => void = () => undefined;
    const stop = onChange((changes) => {
      if (changes.all || changes.jobs.length) (due = true), woken();
    });
    setHeld((now) => ({ ...now, token: "", error: null }));
    void (async () => {
      while (!ended.signal.aborted) {
        if (!due) await new Promise<void>((done) => (woken = done));
        due = false;
        try {
          const jobs: JobRow[] = [];
          let token = "";
          do {
            const left = Math.max(PAGE, Math.min(1000, size.current - jobs.length));
            const page = await getPage(listPath(query, token, left), ended.signal);
            jobs.push(...page.jobs);
            token = page.nextPageToken;
          } while (token && jobs.length < size.current);
          setHeld({ key, jobs, token, error: null });
        } catch (problem) {
          if (ended.signal.aborted) return;
          const error = failure(problem);
          setHeld((now) => ({ ...now, jobs: now.key === key && !withdraws(error) ? now.jobs : null, error }));
          if (error.status === 401) return;
          due = fails(error);
        }
        await pause(2000, ended.signal);
      }
    })();
    return () => {
      stop();
      ended.abort();
      woken();
    };
  }, [key, round]);

  const more = (): void => {
    if (!held.token || busy.current) return;
    busy.current = true;
    getPage(listPath(query, held.token))
      .then(
        (page) => setHeld((now) => now.key !== key ? now : { ...now, jobs: [...(now.jobs ?? []), ...page.jobs], token: page.nextPageToken }),
        (problem: unknown) => setHeld((now) => now.key !== key ? now : { ...now, error: failure(problem) }),
      )
      .finally(() => (busy.current = false));
  };
  return { ...held, more, again: () => setRound((now) => now + 1) };
}

/** The list of jobs, newest first. */
export function Jobs({ query }: { query: URLSearchParams }): JSX.Element {
  useTitle("Jobs");
  const { jobs: listed, token, error, more, again } = useList(query);
  const folding = folds(query);
  const jobs = useMemo(() => (folding && listed ? foldedList(listed) : listed), [listed, folding]);
  const now = useNow(5);
  const search = useRef<HTMLInputElement>(null);
  const narrow = useNarrow();
  const height = narrow ? 92 : 40;
  useEffect(() => {
    if (query.get("focus") === "search") {
      search.current?.focus();
      setQuery({ focus: "" });
    }
  }, [query]);
  const filtered = ["q", "state", ...NARROWED].some((key) => query.get(key));
  return (
    <div class="page jobs">
      <h1>Jobs</h1>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <input
          ref={search} type="search" aria-label="Search jobs" placeholder="Search name, id, label, owner, host"
          value={query.get("q") ?? ""} onInput={(event) => setQuery({ q: event.currentTarget.value })}
        />
        <select aria-label="State" value={query.get("state") ?? ""} onChange={(event) => setQuery({ state: event.currentTarget.value })}>
          <option value="">all states</option>
          {STATES.map((state) => <option key={state} value={state}>{state.toLowerCase()}</option>)}
        </select>
        {NARROWED.map((key) => query.get(key) && (
          <button key={key} type="button" class="chip" onClick={() => setQuery({ [key]: "" })} aria-label={`Remove the filter ${key} ${query.get(key)}`}>
            {key} <Text of={query.get(key) ?? ""} /> ✕
          </button>
        ))}
        {jobs && <span class="soft" role="status">{jobs.length.toLocaleString("en")}{token ? "+" : ""} {jobs.length === 1 ? "job" : "jobs"}</span>}
      </form>
      {error && <Problem error={error} again={again} />}
      {!jobs && !error && <Loading />}
      {jobs && !jobs.length && (filtered
        ? <Empty>No job matches. <a href="/jobs">Show all jobs</a></Empty>
        : <Empty command="holdfast run --gpus 1 -- python train.py">No jobs yet. Submit one:</Empty>)}
      {jobs && jobs.length > 0 && (
        <div class="joblist" role="table" aria-label="Jobs" aria-rowcount={token ? -1 : jobs.length + 1}>
          <div class="row head" role="row">
            {["State", "Name", "Owner", "GPUs", "Step", "Ran", "Age", "Last word"].map((title) => (
              <span key={title} role="columnheader" class={["GPUs", "Step", "Ran", "Age"].includes(title) ? "right" : ""}>{title}</span>
            ))}
          </div>
          <Windowed
            role="rowgroup" count={jobs.length} height={height} label="Jobs, newest first" seen={(_, last) => last >= jobs.length && more()}
            row={(index) => <Row key={jobs[index]?.id} job={jobs[index] as JobRow} now={now} index={index} />}
          />
        </div>
      )}
    </div>
  );
}

function Row({ job, now, index }: { job: JobRow; now: number; index: number }): JSX.Element {
  const time = ran(job, now);
  const word = lastWord(job) || job.health;
  const needs = job.summary?.condition === "NEEDS_YOU";
  return (
    <div class="row" role="row" aria-rowindex={index + 2}>
      <span role="cell" class="condition"><State of={job.state} />{needs && <strong class="needs" title="needs you"><span aria-hidden="true">!</span><span class="unseen">needs you</span></strong>}</span>
      <span role="cell" class="names">
        <a href={job.array?.id === job.id ? `/jobs?array=${encodeURIComponent(job.id)}` : jobPath(job.id)}><Text of={job.displayName || job.id} /></a>
        <small><Text of={job.id} /></small>
      </span>
      <span role="cell" class="owner">
        <a href={`/jobs?owner=${encodeURIComponent(job.owner)}`}><Text of={job.owner} /></a>
        {job.project !== "default" && <> · <a href={`/jobs?project=${encodeURIComponent(job.project)}`}><Text of={job.project} /></a></>}
      </span>
      <span role="cell" class="right gpu-count">{job.gpuCount || "–"}</span>
      <span role="cell" class="right step">{steps(job) || "–"}</span>
      <span role="cell" class="right">{time === null ? "–" : span(time)}</span>
      <span role="cell" class="right age">{age(now - (epoch(job.createTime) ?? now))}</span>
      <span role="cell" class={`word ${job.error || needs ? "bad" : ""}`} title={word}>{!word && ended(job.state) ? "" : <Text of={word} />}</span>
    </div>
  );
}

function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia("(max-width: 700px)").matches);
  useEffect(() => {
    const query = matchMedia("(max-width: 700px)");
    const changed = (): void => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return narrow;
}
