/** Addresses of the page: everything that a link should share is in the URL. */

export interface Route {
  page: "overview" | "jobs" | "job" | "hosts" | "host" | "schedules" | "goodput" | "admin" | "login" | "missing";
  /** Of the job or host. */
  name: string;
  query: URLSearchParams;
}

const PAGES = { "": "overview", jobs: "jobs", hosts: "hosts", schedules: "schedules", goodput: "goodput", admin: "admin", login: "login" } as const;

/** The route of a path and its query. */
export function route(path: string, search: string): Route {
  const query = new URLSearchParams(search);
  const parts = path.split("/").slice(1).filter(Boolean);
  const [first = "", second] = parts;
  const found = (page: Route["page"], name = ""): Route => ({ page, name, query });
  if (parts.length > 2) return found("missing");
  if (second !== undefined) {
    const name = decoded(second);
    if (name !== null && first === "jobs") return found("job", name);
    if (name !== null && first === "hosts") return found("host", name);
    return found("missing");
  }
  return Object.hasOwn(PAGES, first) ? found(PAGES[first as keyof typeof PAGES]) : found("missing");
}

function decoded(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

export const jobPath = (id: string, query = ""): string => `/jobs/${encodeURIComponent(id)}${query}`;
export const hostPath = (name: string): string => `/hosts/${encodeURIComponent(name)}`;

/** The query with some values set; empty ones are left out, so that plain pages have plain addresses. */
export function withQuery(query: URLSearchParams, set: Record<string, string>): string {
  const found = new URLSearchParams(query);
  for (const [key, value] of Object.entries(set)) {
    if (value) found.set(key, value);
    else found.delete(key);
  }
  const text = found.toString();
  return text && `?${text}`;
}

/** The code of a login link, and where it leads; a target of an origin that isn't `here` is not taken. */
export function loginLink(hash: string, here: string): { code: string; to: string } {
  const [code = "", ...rest] = hash.replace(/^#/, "").split("&");
  const to = rest.find((part) => part.startsWith("to="))?.slice(3) ?? "/";
  return { code, to: within(decoded(to) ?? "/", here) };
}

/** As a browser reads it, which skips tabs, takes `\` for `/` and knows several ways to write a path of two slashes. */
function within(to: string, here: string): string {
  try {
    const url = new URL(to, here);
    const path = url.pathname + url.search + url.hash;
    return url.origin === here && new URL(path, here).href === url.href ? path : "/";
  } catch {
    return "/";
  }
}
