/** Calls to the controller: the JSON of the HTTP API, with the header that only this page can send. */
import { ApiError } from "./error.ts";
import { textLines } from "./stream.ts";

export { ApiError };

const HEADERS = { "X-Holdfast": "page" } as const;
/** After that a controller that says nothing is taken for away. */
const ANSWER_MS = 60_000;

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
    throw away(error);
  }
  const refused = response.ok ? null : await refusal(response);
  tell(refused && (refused.status === 401 || refused.status === 429 || refused.status >= 500) ? refused : null);
  if (refused) throw refused;
  return response;
}

function tell(error: ApiError | null): void {
  for (const listener of listeners) listener(error);
}

/** Why there is no answer, of which the listeners hear, or the caller's own end of the call. */
function away(error: unknown): unknown {
  if (error instanceof DOMException && error.name === "AbortError") return error;
  const found = new ApiError(0, "The controller does not answer.");
  tell(found);
  return found;
}

/** The whole answer; one that is cut in the middle is none. */
async function whole<T>(path: string, init: RequestInit, signal?: AbortSignal): Promise<T> {
  const late = AbortSignal.timeout(ANSWER_MS);
  const response = await call(path, { ...init, signal: signal ? AbortSignal.any([signal, late]) : late });
  try {
    return (await response.json()) as T;
  } catch (error) {
    throw away(error);
  }
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
  return whole<T>(path, {}, signal);
}

/** The answer of a POST, or of another method that changes something. */
export async function send<T>(path: string, body: unknown = {}, method = "POST"): Promise<T> {
  return whole<T>(path, { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
}

/** The lines of an answer that goes on; with a body, of a POST. */
export async function lines(path: string, accept: string, signal: AbortSignal, body?: unknown): Promise<AsyncGenerator<string>> {
  const post = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  const response = await call(path, { ...post, signal, headers: { Accept: accept, ...type } });
  if (!response.body) throw new ApiError(0, "The controller sent no body.");
  return textLines(response.body);
}
