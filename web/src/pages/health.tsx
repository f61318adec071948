import type { JSX } from "preact";
import { checkClass, closed, done, keepsAway, over, reliability, repairs } from "../core/health.ts";
import type { Check, Host, HostEvent } from "../core/types/host.ts";
import { epoch, moment, shellWord, span } from "../core/words.ts";
import { Ago, Command, Table, Text } from "../ui/bits.tsx";

const LATELY_S = 7 * 86_400;

/** What is bad of a host, since when, what was done about it and what ends it; what was, and how often it fails. */
export function Health({ host, history, now }: { host: Host; history: readonly HostEvent[]; now: number }): JSX.Element {
  const out = repairs(host);
  const past = closed(history, now - LATELY_S);
  const fails = reliability(host.reliability, now);
  const known = host.state === "READY";
  return (
    <section class="panel health">
      <h2>Health</h2>
      {!host.failedChecks.length && !out.length && <p class="soft">{known ? "Every check passes, and no GPU is out of service." : "Not known while nothing is heard from the host."}</p>}
      {host.failedChecks.map((check) => <Finding key={check.check} of={check} host={host.name} now={now} />)}
      {out.map(({ words, command }) => <article key={command} class="finding"><p><Text of={words} /></p><Command line={command} /></article>)}
      {past.length > 0 && (
        <>
          <h3>Over within 7 days</h3>
          <Table
            caption="Checks that failed and pass again" rows={past} id={(row) => `${row.check}-${row.to}`}
            columns={[
              { title: "Check", cell: (row) => <Text of={row.check} /> },
              { title: "Class", cell: (row) => <Text of={row.what || "–"} /> },
              { title: "Over since", whole: true, cell: (row) => moment(row.to) },
              { title: "Lasted", right: true, whole: true, cell: (row) => (row.from === null ? "–" : span(row.to - row.from)) },
              { title: "What was found", wide: true, cell: (row) => <Text of={row.saw || "longer ago than the history below"} /> },
            ]}
          />
        </>
      )}
      {fails.length > 0 && (
        <>
          <h3>How often it fails</h3>
          {fails.map((line) => <p key={line}><Text of={line} /></p>)}
          {host.reliability?.lemon && <Command line={`holdfast host uncordon ${shellWord(host.name)} --repaired`} />}
        </>
      )}
    </section>
  );
}

function Finding({ of, host, now }: { of: Check; host: string; now: number }): JSX.Element {
  const away = keepsAway(of);
  const since = epoch(of.since);
  return (
    <article class={`finding ${away || of.status === "ERROR" ? "urgent" : ""}`}>
      <h3><Text of={of.check} /> <small class={away ? "bad" : ""}><Text of={checkClass(of)} /></small></h3>
      <p><Text of={of.saw} /></p>
      <p class="soft"><Text of={of.why} /></p>
      <dl class="said">
        {since !== null && <div><dt>Since</dt><dd>{moment(since)}, for <Ago at={of.since} now={now} /></dd></div>}
        <div><dt>What was done</dt><dd>{done(of)}</dd></div>
        <div><dt>What ends it</dt><dd>{over(of)}{away && <>; if it is well for all that:<Command line={`holdfast host uncordon ${shellWord(host)}`} /></>}</dd></div>
        {of.fix.length > 0 && <div><dt>What to try</dt><dd>{of.fix.map((line) => <Command key={line} line={line} />)}</dd></div>}
      </dl>
    </article>
  );
}
