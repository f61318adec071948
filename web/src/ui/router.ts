import { useEffect, useState } from "preact/hooks";
import { route, withQuery } from "../core/route.ts";
import type { Route } from "../core/route.ts";

const CHANGED = "holdfast:route";

/** Go to an address of the page; `replace` for what the way back should skip. */
export function go(path: string, replace = false): void {
  if (path === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  dispatchEvent(new Event(CHANGED));
}

/** Change the query of the present address. */
export function setQuery(set: Record<string, string>, replace = true): void {
  go(location.pathname + withQuery(new URLSearchParams(location.search), set), replace);
}

export function useRoute(): Route {
  const [now, setNow] = useState(() => route(location.pathname, location.search));
  useEffect(() => {
    const changed = (): void => setNow(route(location.pathname, location.search));
    addEventListener("popstate", changed);
    addEventListener(CHANGED, changed);
    return () => {
      removeEventListener("popstate", changed);
      removeEventListener(CHANGED, changed);
    };
  }, []);
  return now;
}

/** Links within the page are followed without a load; with a modifier they are the browser's. */
export function followLinks(): void {
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!(link instanceof HTMLAnchorElement) || link.target || link.origin !== location.origin || link.hash) return;
    event.preventDefault();
    const other = link.pathname !== location.pathname;
    go(link.pathname + link.search);
    if (other) {
      scrollTo(0, 0);
      document.querySelector<HTMLElement>("main")?.focus({ preventScroll: true });
    }
  });
}
