import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { ApiError, failure, lines } from "../core/api.ts";
import { groupWords, rankWords, stacks } from "../core/evidence.ts";
import type { StackGroup } from "../core/evidence.ts";
import { jobPath } from "../core/route.ts";
import type { WorkerEvidence } from "../core/types/records.ts";
import { Command, Problem, Text } from "../ui/bits.tsx";
import { saveFile } from "../ui/save.ts";

/** So many frames of a group are shown; the rest is in the file. */
const DEEPEST = 40;

/** Stacks of all ranks, grouped by where they are: those that were kept of a hang, or, with `now`, taken anew. */
export function Stacks({ id, hang, now = false }: { id: string; hang?: number; now?: boolean }): JSX.Element {
  const [workers, setWorkers] = useState<WorkerEvidence[] | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const text = useRef<string[]>([]);
  const path = `/v1/jobs/${encodeURIComponent(id)}${now ? ":stacks" : `/hangs/${hang}/evidence`}`;
  const ask = (): void => {
    setBusy(true);
    setError(null);
    const found: WorkerEvidence[] = [];
    text.current = [];
    lines(path, "application/x-ndjson", new AbortController().signal, now ? {} : undefined)
      .then(async (stream) => {
        for await (const line of stream) {
          if (!line) continue;
          const each = JSON.parse(line) as WorkerEvidence & { error?: { message: string } };
          if (each.error) throw new ApiError(500, each.error.message);
          found.push(each);
          text.current.push(line);
        }
        setWorkers(found);
      })
      .catch((problem: unknown) => setError(failure(problem)))
      .finally(() => setBusy(false));
  };
  const command = now ? `holdfast job stacks ${id}` : `holdfast job hangs ${id} --number ${hang} --full`;
  return (
    <div class="stacks">
      <div class="ranges">
        <button type="button" onClick={ask} disabled={busy}>{busy ? "Looking twice at each rank…" : now ? "Where is each rank now?" : "Show every rank's stack"}</button>
        {workers !== null && workers.length > 0 && <button type="button" onClick={() => saveFile(`${id}-${now ? "stacks" : `hang-${hang}`}.json`, `[${text.current.join(",\n")}]\n`)}>Save as a file</button>}
      </div>
      {error && <Problem error={error} again={ask} />}
      {workers && <Found workers={workers} id={id} command={command} />}
    </div>
  );
}

function Found({ workers, id, command }: { workers: WorkerEvidence[]; id: string; command: string }): JSX.Element {
  const { groups, collectives, problems } = stacks(workers);
  return (
    <>
      {!groups.length && <p class="soft">No rank's stack could be read{workers.length ? "" : ": none was kept"}.</p>}
      {groups.map((group, index) => <Group key={group.key} group={group} id={id} open={index === 0} odd={groups.length > 1 && index === 0} />)}
      {collectives.length > 0 && (
        <dl class="said">{collectives.map(({ ranks, words }) => <div key={words}><dt>{rankWords(ranks)}</dt><dd><Text of={words} /></dd></div>)}</dl>
      )}
      {problems.length > 0 && <ul class="plain soft">{problems.map((words) => <li key={words}>No stack: <Text of={words} /></li>)}</ul>}
      <Command line={command} />
    </>
  );
}

function Group({ group, id, open, odd }: { group: StackGroup; id: string; open: boolean; odd: boolean }): JSX.Element {
  const cut = group.framesCut + Math.max(0, group.frames.length - DEEPEST);
  return (
    <details open={open} class={odd ? "odd-one" : ""}>
      <summary><Text of={groupWords(group)} /></summary>
      <p>{group.ranks.slice(0, 16).map((each, index) => (
        <>{index ? ", " : ""}<a href={jobPath(id, `?tab=logs&rank=${each.rank}`)}><Text of={`${each.worker} rank ${each.rank}`} /></a></>
      ))}{group.ranks.length > 16 ? ` and ${group.ranks.length - 16} more` : ""}</p>
      <pre class="details" tabIndex={0} aria-label="Stack, innermost frame first">
        {group.frames.slice(0, DEEPEST).map((frame, index) => <div key={index}><Text of={frame.function} />{"  "}<span class="soft"><Text of={frame.place} /></span></div>)}
        {cut > 0 && <div class="soft">… {cut} more frames</div>}
      </pre>
    </details>
  );
}
