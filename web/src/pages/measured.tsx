import type { JSX } from "preact";
import { figure, newest, next, shown } from "../core/measured.ts";
import { jobPath } from "../core/route.ts";
import type { Measurements } from "../core/types/host.ts";
import { epoch, moment } from "../core/words.ts";
import { Ago, Table, Text } from "../ui/bits.tsx";

/** What active checks have measured of a host, beside others like it, and what comes next. */
export function Measured({ of, now }: { of: Measurements; now: number }): JSX.Element {
  const checks = newest(of);
  const rows = checks.flatMap((check) => Object.keys(check.figures).sort().map((name) => ({ name, check, usual: of.usual[name] })));
  const comes = next(of);
  return (
    <section class="panel">
      <h2>Measured</h2>
      {!checks.length && !comes && <p class="soft">No check has measured it yet.</p>}
      {checks.map((check) => (
        <p key={check.jobId}>
          {check.partner ? <>With <Text of={check.partner} />: </> : "Alone: "}
          {check.outcome === "MEASURED" ? "measured" : check.outcome === "STOPPED" ? "stopped" : "could not be measured"}{" "}
          {check.time ? <>{moment(epoch(check.time) ?? 0)}, <Ago at={check.time} now={now} /> ago, </> : ""}by <a href={jobPath(check.jobId)}><Text of={check.jobId} /></a>
          {check.problem && <>; {check.outcome === "MEASURED" && "not measured: "}<Text of={check.problem} /></>}
        </p>
      ))}
      {comes && <p><Text of={comes} /></p>}
      {rows.length > 0 && (
        <Table
          caption="Figures of active checks" rows={rows} id={(row) => row.name}
          columns={[
            { title: "Figure", cell: (row) => <Text of={row.name} /> },
            { title: "Measured", right: true, whole: true, cell: (row) => figure(row.name, row.check.figures[row.name] ?? 0) },
            { title: "Others like it", right: true, whole: true, cell: (row) => (row.usual === undefined ? "–" : figure(row.name, row.usual)) },
            { title: "Of that", right: true, cell: (row) => (row.usual ? `${shown((100 * (row.check.figures[row.name] ?? 0)) / row.usual)} %` : "–") },
          ]}
        />
      )}
    </section>
  );
}
