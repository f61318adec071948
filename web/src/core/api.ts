/** Calls to the controller: the JSON of the HTTP API, with the header that only this page can send. */
import { Patience } from "./patience.ts";
import { textLines } from "./stream.ts";

const HEADERS = { "X-Holdfast": "page" } as const;
/** A quarter of the time for the whole answer of a GET; the slowest waits 40 seconds for a host. */
const ANSWER_MS = 20_000;
/** The controller sends a sign of life that often: of a stream that lacks three the other end is gone. */
const STILL_MS = 15_000;

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

/** A failure of any kind as a refusal: what isn't the controller's word counts as no answer. */
export function failure(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, "The controller's answer broke off.");
}

type Listener = (error: ApiError | null) => void;
const listeners = new Set<Listener>();

/** Hear of each call's end: null if the controller answered, else why it did not, or why what is shown may be old. */
export function onAnswer(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Whether it says that what was seen before is not for this user any more. */
export const withdraws = (error: ApiError): boolean => error.status === 403;

/** Whether the same may be answered in a while. */
export const fails = ({ status }: ApiError): boolean => status === 0 || status === 429 || status >= 500;

function tell(error: ApiError | null): void {
  for (const listener of listeners) listener(error);
}

async function call(path: string, init: RequestInit, asker?: AbortSignal): Promise<Response> {
  const response = await answered(asker, "The controller does not answer.", () =>
    fetch(path, { ...init, headers: { ...HEADERS, ...init.headers }, credentials: "same-origin", cache: "no-store" }),
  );
  const refused = response.ok ? null : await refusal(response);
  const read = init.method === undefined;
  tell(refused && (refused.status === 401 || (read && fails(refused))) ? refused : null);
  if (refused) throw refused;
  return response;
}

/** What was waited for; all are told where it does not come, though who asked wants it still. */
async function answered<T>(asker: AbortSignal | undefined, otherwise: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (asker?.aborted) throw error;
    const away = new ApiError(0, otherwise);
    tell(away);
    throw away;
  }
}

function parsed<T>(response: Response, asker?: AbortSignal): Promise<T> {
  return answered(asker, "The controller's answer broke off.", () => response.json() as Promise<T>);
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
export async function get<T>(path: string, asker?: AbortSignal): Promise<T> {
  return (await getTagged<T>(path, asker)).data;
}

/** The answer of a GET, with the tag by which it is followed; empty where it can't be. */
export async function getTagged<T>(path: string, asker?: AbortSignal): Promise<{ data: T; tag: string }> {
  const patience = new Patience(ANSWER_MS, asker);
  try {
    const response = await call(path, { signal: patience.signal }, asker);
    const tag = response.headers.get("ETag")?.replace(/^(W\/)?"|"$/g, "") ?? "";
    return { data: await parsed<T>(response, asker), tag };
  } finally {
    patience.over();
  }
}

/** The answer of a POST, or of another method that changes something. */
export async function send<T>(path: string, body: unknown = {}, method = "POST"): Promise<T> {
  const init = { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return parsed<T>(await call(path, init));
}

/** The lines of an answer that goes on; with a body, of a POST. */
export async function lines(path: string, accept: string, asker: AbortSignal, body?: unknown): Promise<AsyncGenerator<string>> {
  const post = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  const patience = new Patience(STILL_MS, asker);
  try {
    const response = await call(path, { ...post, signal: patience.signal, headers: { Accept: accept, ...type } }, asker);
    if (!response.body) throw new ApiError(0, "The controller sent no body.");
    return whole(response.body, patience, asker);
  } catch (error) {
    patience.over();
    throw error;
  }
}

async function* whole(body: ReadableStream<Uint8Array>, patience: Patience, asker: AbortSignal): AsyncGenerator<string> {
  try {
    yield* textLines(body, patience.heard);
  } catch (error) {
    if (asker.aborted) throw error;
    const cut = new ApiError(0, "The controller's answer broke off.");
    // A connection that broke says so to the next call as well; a machine that is dead leaves that waiting.
    if (patience.signal.aborted) tell(cut);
    throw cut;
  } finally {
    patience.over();
  }
}
