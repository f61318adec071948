import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { failure, get } from "../core/api.ts";
import type { ApiError } from "../core/api.ts";
import { gpusFree, hostLook, hostState, remark } from "../core/hosts.ts";
import { hostPath } from "../core/route.ts";
import type { Status } from "../core/types/cluster.ts";
import type { Host } from "../core/types/host.ts";
import { count, gib } from "../core/words.ts";
import { Ago, Empty, Problem, Stale, Table, Text, Unready } from "../ui/bits.tsx";
import { once, useData, useNow, useTitle } from "../ui/hooks.ts";
import type { Loaded } from "../ui/hooks.ts";
import { setQuery } from "../ui/router.ts";
import { Network } from "./network.tsx";
import { Reservations, useReservations } from "./reserved.tsx";
import type { HostList } from "./overview.tsx";

/** Every host with what of it is free. */
export function Hosts({ query }: { query: URLSearchParams }): JSX.Element {
  useTitle("Hosts");
  const first = useData<HostList>("/v1/hosts?pageSize=1000", () => true);
  const { data, error, again } = first;
  const status = useData<Status>("/v1/status", once);
  const levels = status.data?.topology ?? [];
  const rest = useRest(data);
  const reserved = useReservations();
  const now = useNow(5);
  if (!data) return <Unready title="Hosts" error={error} again={again} />;
  const find = (query.get("q") ?? "").toLowerCase();
  const all = [...data.hosts, ...(rest.data ?? [])];
  const shown = all.filter((host) => !find || [host.name, host.address, hostState(host), ...Object.values(host.labels), ...host.jobIds].some((text) => text.toLowerCase().includes(find)));
  return (
    <div class="page">
      <h1>Hosts</h1>
      <Stale of={first} />
      {!all.length ? <Empty command="holdfast host token create">No hosts yet. Make a token for one:</Empty> : (
        <>
          <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
            <input type="search" aria-label="Search hosts" placeholder="Search name, state, label, job" value={query.get("q") ?? ""} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
            <span class="soft" role="status">{shown.length} {shown.length === 1 ? "host" : "hosts"}</span>
          </form>
          {rest.error && (
            <>
              <p class="bad">The first {count(all.length, "host")}. The others could not be read:</p>
              <Problem error={rest.error} again={rest.again} />
            </>
          )}
          <div class="panel">
            <Table
              caption="Hosts" rows={shown} id={(host) => host.name}
              columns={[
                { title: "Name", cell: (host) => <a href={hostPath(host.name)}><Text of={host.name} /></a> },
                { title: "State", cell: (host) => <span class={`dot d-${hostLook(host)}`}>{hostState(host)}</span> },
                { title: "GPUs free", right: true, cell: (host) => (host.gpus.length ? `${gpusFree(host)}/${host.gpus.length}` : "–") },
                { title: "CPUs free", right: true, cell: (host) => `${host.cpuCount - host.cpuReserved}/${host.cpuCount}` },
                { title: "Memory free", right: true, cell: (host) => gib(host.memoryBytes - host.memoryReservedBytes) },
                { title: "Workers", right: true, cell: (host) => host.workers },
                { title: "Seen", right: true, cell: (host) => <Ago at={host.lastSeen} now={now} /> },
                { title: "Remark", wide: true, cell: (host) => <Text of={remark(host, now)} /> },
              ]}
            />
          </div>
          {levels.length > 0 && <Network hosts={all} levels={levels} />}
          <Reservations of={reserved} now={now} />
        </>
      )}
    </div>
  );
}

/** The hosts beyond the first page, as far as they could be read. */
function useRest(first: HostList | null): Loaded<Host[]> {
  const [rest, setRest] = useState<{ data: Host[]; error: ApiError | null }>({ data: [], error: null });
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (!first?.nextPageToken) return undefined;
    const ended = new AbortController();
    void (async () => {
      const found: Host[] = [];
      let error: ApiError | null = null;
      try {
        let token = first.nextPageToken;
        while (token) {
          const page: HostList = await get(`/v1/hosts?pageSize=1000&pageToken=${encodeURIComponent(token)}`, ended.signal);
          found.push(...page.hosts);
          token = page.nextPageToken;
        }
      } catch (problem) {
        error = failure(problem);
      }
      if (!ended.signal.aborted) setRest({ data: found, error });
    })();
    return () => ended.abort();
  }, [first, round]);
  const again = (): void => setRound((now) => now + 1);
  return first?.nextPageToken ? { ...rest, again } : { data: [], error: null, again };
}
