import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { failure } from "../core/api.ts";
import type { ApiError } from "../core/api.ts";
import { readOn } from "../core/resume.ts";
import type { JobEvent } from "../core/types/records.ts";
import { epoch, moment, stateName } from "../core/words.ts";
import { useSeen } from "../ui/hooks.ts";
import { Empty, Loading, Problem, Text, Windowed } from "../ui/bits.tsx";

/** The newest events that are kept in the page. */
const MOST = 20_000;

/** The job's history, oldest first, then as it happens. */
export function Events({ id, live }: { id: string; live: boolean }): JSX.Element {
  const [events, setEvents] = useState<JobEvent[]>([]);
  const [over, setOver] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const [round, setRound] = useState(0);
  const [pinned, setPinned] = useState(live);
  const seen = useSeen() || over;
  useEffect(() => {
    if (!seen) return undefined;
    const ended = new AbortController();
    const found: JobEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = (): void => {
      timer ??= setTimeout(() => ((timer = undefined), setEvents(found.slice(-MOST))), 200);
    };
    setError(null);
    readOn<JobEvent>({
      path: () => `/v1/jobs/${encodeURIComponent(id)}:watch?cursor=${found.at(-1)?.cursor ?? 0}`,
      begun: () => setError(null),
      take: (event) => {
        found.push(event);
        if (found.length > 2 * MOST) found.splice(0, MOST);
        show();
        return false;
      },
      cut: setError,
    }, ended.signal).then(() => setOver(true), (problem: unknown) => !ended.signal.aborted && setError(failure(problem)));
    return () => (ended.abort(), clearTimeout(timer));
  }, [id, round, seen]);
  if (error && !events.length) return <Problem error={error} again={() => setRound((now) => now + 1)} />;
  if (!events.length) return over ? <Empty>No events.</Empty> : <Loading />;
  return (
    <div class="panel events">
      {error && <Problem error={error} again={() => setRound((now) => now + 1)} />}
      <div role="table" aria-label="Events" aria-rowcount={events.length}><Windowed
        role="rowgroup" count={events.length} height={32} label="Events" class="tall" pinned={pinned} unpin={() => setPinned(false)}
        row={(index) => {
          const event = events[index];
          if (!event) return <div key={index} />;
          const time = epoch(event.time);
          return (
            <div class="row" role="row" key={event.cursor}>
              <span role="cell" class="soft">{time === null ? "" : moment(time)}</span>
              <span role="cell" class="soft">{stateName(event.state).toLowerCase()}</span>
              <span role="cell" title={event.message}><Text of={event.message || event.type} /></span>
            </div>
          );
        }}
      /></div>
      {!pinned && <button type="button" class="end" onClick={() => setPinned(true)}>Go to the newest</button>}
    </div>
  );
}
