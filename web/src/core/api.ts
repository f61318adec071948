/** Calls to the controller: the JSON of the HTTP API, with the header that only this page can send. */
import { textLines } from "./stream.ts";

const HEADERS = { "X-Holdfast": "page" } as const;

/** The controller's refusal, in its words. `status` 0: it did not answer at all. */
export class ApiError extends Error {
  readonly status: number;
  readonly reason: string;

  constructor(status: number, message: string, reason = "") {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

type Listener = (error: ApiError | null) => void;
const listeners = new Set<Listener>();

/** Hear of each call's end: null if the controller answered, else why it did not. */
export function onAnswer(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

async function call(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      ...init,
      headers: { ...HEADERS, ...init.headers },
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    const away = new ApiError(0, "The controller does not answer.");
    for (const listener of listeners) listener(away);
    throw away;
  }
  const refused = response.ok ? null : await refusal(response);
  for (const listener of listeners) listener(refused?.status === 401 ? refused : null);
  if (refused) throw refused;
  return response;
}

async function refusal(response: Response): Promise<ApiError> {
  const fallback = `The controller answered ${response.status}.`;
  try {
    const { error } = (await response.json()) as { error?: { message?: unknown; details?: { reason?: unknown }[] } };
    const message = typeof error?.message === "string" ? error.message : fallback;
    const reason = error?.details?.map((each) => each.reason).find((each) => typeof each === "string");
    return new ApiError(response.status, message, typeof reason === "string" ? reason : "");
  } catch {
    return new ApiError(response.status, fallback);
  }
}

/** The answer of a GET. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await call(path, signal ? { signal } : {})).json()) as T;
}

/** The answer of a POST, or of another method that changes something. */
export async function send<T>(path: string, body: unknown = {}, method = "POST"): Promise<T> {
  const init = { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return (await (await call(path, init)).json()) as T;
}

/** The lines of an answer that goes on; with a body, of a POST. */
export async function lines(path: string, accept: string, signal: AbortSignal, body?: unknown): Promise<AsyncGenerator<string>> {
  const post = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  const response = await call(path, { ...post, signal, headers: { Accept: accept, ...type } });
  if (!response.body) throw new ApiError(0, "The controller sent no body.");
  return textLines(response.body);
}
