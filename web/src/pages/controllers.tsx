import type { JSX } from "preact";
import type { Leadership, Status } from "../core/types/cluster.ts";
import { epoch, moment } from "../core/words.ts";
import { Command, Loading, Problem, Table, Text } from "../ui/bits.tsx";
import { once, useData } from "../ui/hooks.ts";

const MUCH_BEHIND = 1_000;

interface Row {
  machine: string;
  leads: boolean;
  behind: number;
  differing: string;
}

/** Which controller leads and which stand by, as `holdfast status` says. */
export function Controllers(): JSX.Element {
  const { data, error, again } = useData<Status>("/v1/status", once);
  return (
    <section class="panel controllers">
      <h2>Controllers</h2>
      {error && !data ? <Problem error={error} again={again} /> : !data ? <Loading /> : (
        <>
          <p>Release {data.version}, term {data.epoch}, since {moment(epoch(data.started) ?? 0)}.</p>
          {data.leadership ? <Several of={data.leadership} /> : <p>This controller is the only one: while it is down jobs run on, and nothing new starts.</p>}
          <p class="soft">The same from a terminal:</p>
          <Command line="holdfast status" />
        </>
      )}
    </section>
  );
}

function Several({ of }: { of: Leadership }): JSX.Element {
  const leader: Row = { machine: of.leader, leads: true, behind: 0, differing: "" };
  const rows = [leader, ...of.standbyDetails.map((each) => ({ machine: each.machine, leads: false, behind: each.behindEvents, differing: each.differingSettings }))];
  return (
    <>
      <p>They share <Text of={of.database} />.</p>
      {!of.standbyDetails.length && <p class="bad">None stands by: when the one that leads dies, no other takes over.</p>}
      {of.risk && <p class="bad"><Text of={of.risk} /></p>}
      <Table
        caption="Controllers" rows={rows} id={(_, index) => index}
        columns={[
          { title: "Machine", cell: (row) => <Text of={row.machine} /> },
          { title: "Role", cell: (row) => (row.leads ? "leads" : "stands by") },
          { title: "Behind", right: true, cell: (row) => (row.leads ? "–" : <span class={row.behind > MUCH_BEHIND ? "bad" : ""}>{row.behind.toLocaleString("en")} events{row.behind > MUCH_BEHIND && ", read first at a takeover"}</span>) },
          { title: "Other settings", wide: true, cell: (row) => (row.differing ? <span class="bad">another controller.toml: <Text of={row.differing} /> (its log names all keys)</span> : "–") },
        ]}
      />
    </>
  );
}
