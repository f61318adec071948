import type { JSX } from "preact";
import { silence } from "../core/silence.ts";
import type { Host, HostEvent } from "../core/types/host.ts";
import { moment, shellWord } from "../core/words.ts";
import { Command } from "../ui/bits.tsx";

/** A host that nothing is heard from: when it last was, what has come of that, what comes next, and what changes it. */
export function Silent({ host, history, now }: { host: Host; history: readonly HostEvent[]; now: number }): JSX.Element {
  return (
    <section class="panel silent">
      <h2>Nothing is heard from it</h2>
      <ol class="moments">
        {silence(host, history, now).map(({ at, words, when }) => (
          <li key={words} class={when}><span class="soft">{at === null ? "" : moment(at)}</span> <span>{words}</span></li>
        ))}
      </ol>
      <p>If it is switched off for certain, what waits for it goes on elsewhere now by:</p>
      <Command line={`holdfast host fence ${shellWord(host.name)}`} />
    </section>
  );
}
