import type { JSX } from "preact";
import { BY, GROUPS, hours, summary } from "../core/ledger.ts";
import type { Group, SumRow } from "../core/ledger.ts";
import { hostPath } from "../core/route.ts";
import type { GoodputSum } from "../core/types/goodput.ts";
import { moment, epoch, percent } from "../core/words.ts";
import { Command, Empty, GoodputBar, Loading, Problem, Table, Text } from "../ui/bits.tsx";
import { once, useData, useNow, useTitle } from "../ui/hooks.ts";
import { setQuery } from "../ui/router.ts";

const SINCE: readonly (readonly [string, string, number])[] = [["7", "7 days", 7], ["30", "30 days", 30], ["90", "90 days", 90], ["", "all time", 0]];

/** What GPUs spent their time on, by project, owner, host or model; sums are the ledger's. */
export function GoodputPage({ query }: { query: URLSearchParams }): JSX.Element {
  useTitle("Goodput");
  const by = BY.find((each) => each === query.get("by")) ?? "project";
  const chosen = SINCE.find(([key]) => key === (query.get("days") ?? "")) ?? ["", "all time", 0];
  const day = Math.floor(useNow(3600) / 86_400);
  const since = chosen[2] ? new Date((day - chosen[2] + 1) * 86_400_000).toISOString().slice(0, 10) : "";
  const asked = new URLSearchParams({ by, ...(since && { since: `${since}T00:00:00Z` }) });
  const { data, error, again } = useData<GoodputSum>(`/v1/goodput?${asked}`, once);
  const rows = data ? summary(data.rows, by) : [];
  const began = epoch(data?.completeSince);
  return (
    <div class="page">
      <h1>Goodput</h1>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>By <select value={by} onChange={(event) => setQuery({ by: event.currentTarget.value })}>{BY.map((each) => <option key={each}>{each}</option>)}</select></label>
        <label>Over <select value={chosen[0]} onChange={(event) => setQuery({ days: event.currentTarget.value })}>{SINCE.map(([key, words]) => <option key={key} value={key}>{words}</option>)}</select></label>
        <button type="button" onClick={again}>Refresh</button>
      </form>
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {began !== null && <p class="soft">The ledger begins at {moment(began)}, with an upgrade of the controller.</p>}
      {data?.truncated && <p class="bad">There are more rows than are shown.</p>}
      {data && !rows.length && <Empty>No job has held a host in this time.</Empty>}
      {rows.length > 0 && (
        <div class="panel">
          <Table
            caption="Hours by category" rows={rows} id={(row) => `${row.name} ${row.ranks}`}
            columns={[
              { title: by[0]?.toUpperCase() + by.slice(1), cell: (row) => (by === "host" ? <a href={hostPath(row.name)}><Text of={row.name} /></a> : <Text of={row.name || "–"} />) },
              { title: "Hours", right: true, whole: true, cell: (row) => `${hours(row.totalMs)} ${row.ranks ? "rank h" : "GPU h"}` },
              { title: "Goodput", right: true, whole: true, cell: (row) => percent(row.goodput) },
              { title: "Where it went", wide: true, cell: (row) => <GoodputBar of={row} legend={false} /> },
              ...(Object.keys(GROUPS) as Group[]).map((group) => ({
                title: group[0]?.toUpperCase() + group.slice(1), right: true,
                cell: (row: SumRow) => hours(row.groups.find(([each]) => each === group)?.[1] ?? 0),
              })),
            ]}
          />
          <p class="soft">The same from a terminal:</p>
          <Command line={`holdfast goodput --by ${by}${since ? ` --since ${since}` : ""}`} />
        </div>
      )}
    </div>
  );
}
