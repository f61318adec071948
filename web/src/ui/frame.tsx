import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { onAnswer, send } from "../core/api.ts";
import type { ApiError } from "../core/api.ts";
import type { Route } from "../core/route.ts";
import type { Me } from "../core/types/cluster.ts";
import { Admin } from "../pages/admin.tsx";
import { GoodputPage } from "../pages/goodput.tsx";
import { HostPage } from "../pages/host.tsx";
import { Hosts } from "../pages/hosts.tsx";
import { JobPage } from "../pages/job.tsx";
import { Jobs } from "../pages/jobs.tsx";
import { Login } from "../pages/login.tsx";
import { Overview } from "../pages/overview.tsx";
import { Schedules } from "../pages/schedules.tsx";
import { Command, Dialog, Empty, Text } from "./bits.tsx";
import { once, useData, useTitle } from "./hooks.ts";
import { go, useRoute } from "./router.ts";

const PLACES = [
  ["/", "overview", "Overview", "o"],
  ["/jobs", "jobs", "Jobs", "j"],
  ["/hosts", "hosts", "Hosts", "h"],
  ["/schedules", "schedules", "Schedules", "s"],
  ["/goodput", "goodput", "Goodput", "p"],
  ["/admin", "admin", "Admin", "a"],
] as const;

/** What surrounds every page: the way to the others, who one is, and whether the controller answers. */
export function Frame(): JSX.Element {
  const now = useRoute();
  const [trouble, setTrouble] = useState<ApiError | null>(null);
  const [keys, setKeys] = useState(false);
  useEffect(() => onAnswer(setTrouble), []);
  useKeys(() => setKeys(true));
  if (now.page === "login") return <Login />;
  if (trouble?.status === 401) return <SignedOut message={trouble.message} />;
  const place = now.page === "job" ? "jobs" : now.page === "host" ? "hosts" : now.page;
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the content
      </a>
      <header class="rail">
        <a class="brand" href="/"><span>Holdfast</span></a>
        <nav aria-label="Pages">
          {PLACES.map(([path, page, title]) => (
            <a key={page} href={path} aria-current={place === page ? "page" : undefined}>{title}</a>
          ))}
        </nav>
        <Who help={() => setKeys(true)} />
      </header>
      {trouble && (
        <div class="banner" role="status">
          The controller {trouble.status === 0 ? "does not answer" : "fails to answer"}. What you see may be old; trying again…
          {trouble.status !== 0 && <> (<Text of={trouble.message} />)</>}
        </div>
      )}
      <main id="main" tabIndex={-1}><Page of={now} /></main>
      {keys && <Keys close={() => setKeys(false)} />}
    </div>
  );
}

function Page({ of }: { of: Route }): JSX.Element {
  switch (of.page) {
    case "overview": return <Overview />;
    case "jobs": return <Jobs query={of.query} />;
    case "job": return <JobPage key={of.name} id={of.name} query={of.query} />;
    case "hosts": return <Hosts query={of.query} />;
    case "host": return <HostPage key={of.name} name={of.name} />;
    case "schedules": return <Schedules query={of.query} />;
    case "goodput": return <GoodputPage query={of.query} />;
    case "admin": return <Admin query={of.query} />;
    default: return <Missing />;
  }
}

function Missing(): JSX.Element {
  useTitle("No such page");
  return (
    <div class="page">
      <h1>There is no such page</h1>
      <Empty><a href="/">Overview</a></Empty>
    </div>
  );
}

function Who({ help }: { help: () => void }): JSX.Element {
  const { data } = useData<Me>("/v1/me", once);
  return (
    <div class="who">
      {data && <span class="name"><Text of={data.user.name} /> <small>on <Text of={data.cluster} /></small></span>}
      <button type="button" onClick={help} aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)">?</button>
      <Theme />
    </div>
  );
}

const THEMES = ["system", "light", "dark"] as const;

function Theme(): JSX.Element {
  const [theme, setTheme] = useState(() => document.documentElement.dataset["theme"] ?? "system");
  const choose = (chosen: string): void => {
    setTheme(chosen);
    if (chosen === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = chosen;
    try {
      if (chosen === "system") localStorage.removeItem("theme");
      else localStorage.setItem("theme", chosen);
    } catch {
      // Storage may be forbidden; the choice then holds for this page alone.
    }
  };
  return (
    <select aria-label="Theme" value={theme} onChange={(event) => choose(event.currentTarget.value)}>
      {THEMES.map((each) => <option key={each} value={each}>{each}</option>)}
    </select>
  );
}

/** Sign out here; the command line stays as it is. */
export async function signOut(): Promise<void> {
  await send("/web/logout");
  location.assign("/");
}

function SignedOut({ message }: { message: string }): JSX.Element {
  useTitle("Signed out");
  return (
    <main class="door">
      <h1>Holdfast</h1>
      <p>{message}</p>
      <p>To come in, type in a terminal where you use Holdfast:</p>
      <Command line="holdfast web" />
    </main>
  );
}

function useKeys(help: () => void): void {
  // Before the page is seen: a key that is typed then must not be lost.
  useLayoutEffect(() => {
    let waits = 0;
    const pressed = (event: KeyboardEvent): void => {
      const target = event.target instanceof Element ? event.target : null;
      if (event.ctrlKey || event.metaKey || event.altKey || target?.closest("input, textarea, select, dialog[open]")) return;
      const place = PLACES.find((each) => each[3] === event.key);
      if (Date.now() - waits < 1500 && place) {
        waits = 0;
        go(place[0]);
      } else if (event.key === "g") waits = Date.now();
      else if (event.key === "?") help();
      else if (event.key === "/") {
        const search = document.querySelector<HTMLInputElement>("input[type=search]");
        if (search) search.focus();
        else go("/jobs?focus=search");
      } else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}

const KEYS: readonly (readonly [string, ComponentChildren])[] = [
  ...PLACES.map(([, , title, key]) => [`g ${key}`, title] as const),
  ["/", "Search"],
  ["?", "These shortcuts"],
  ["Esc", "Close what is open"],
];

function Keys({ close }: { close: () => void }): JSX.Element {
  return (
    <Dialog title="Keyboard shortcuts" close={close}>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>
        ))}
      </dl>
      <form method="dialog"><button>Close</button></form>
    </Dialog>
  );
}
