// Requests to the program, and through it to the Kubernetes API.
import type { Kind } from './kinds';

const storage = 'keelson-console-key';
const prefix = '/kubernetes';

export interface About {
  cluster: string;
  version: string;
  kinds: Kind[];
  /** The SSH key that new machines accept by default. */
  sshKey?: string;
}

export interface Status {
  kind: 'Status';
  code: number;
  reason?: string;
  message?: string;
}

/** A refusal of the API, or of the program. */
export class APIError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly noSession = false,
    /** The answer is not one of an API: it has no such group. */
    readonly noAPI = false,
  ) {
    super(message);
  }
}

let key = '';

/** Where WebSockets lead. */
export const socketOrigin = () => location.origin.replace(/^http/, 'ws');

/** Exchanges the token in the URL for a session, or takes up that of an earlier visit. */
export async function enter(): Promise<About> {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (token) {
    history.replaceState(null, '', location.pathname + location.search); // not even in the history
    await logIn(token);
  }
  key = localStorage.getItem(storage) ?? '';
  try {
    return await whole(await request('/about'), (r) => r.json());
  } catch (err) {
    // A proxy that knows the user adds the token to each request.
    if (!(err instanceof APIError && err.noSession && (await waysIn()).proxy)) throw err;
    await logIn('');
    key = localStorage.getItem(storage) ?? '';
    return whole(await request('/about'), (r) => r.json());
  }
}

/** Exchanges a token for a session. Returns why that failed. */
export async function logIn(token: string): Promise<string> {
  const response = await fetch('/session', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token }) });
  const body = await response.json();
  if (response.ok) localStorage.setItem(storage, body.key);
  return response.ok ? '' : body.message;
}

/** How one gets a session: with a token of one's own, which a proxy may add. Otherwise with the URL of the command. */
export async function waysIn(): Promise<{ login: boolean; proxy: boolean }> {
  return whole(await request('/session'), (r) => r.json());
}

export function sessionKey(): string {
  return key;
}

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set('Keelson-Console', key);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers });
  } catch (err) {
    if ((err as Error).name === 'AbortError') throw err;
    throw new APIError(0, '');
  }
  if (response.ok) return response;
  const body: Partial<Status> = await response.json().catch(() => ({}));
  const refused = response.headers.has('Keelson-Console');
  throw new APIError(response.status, body.message ?? response.statusText, refused && response.status === 401, body.kind !== 'Status');
}

/** Reads the body of a response. The connection may end before that is whole. */
async function whole<T>(response: Response, read: (response: Response) => Promise<T>): Promise<T> {
  try {
    return await read(response);
  } catch (err) {
    if ((err as Error).name === 'AbortError') throw err;
    throw new APIError(0, '');
  }
}

export async function getJSON<T>(path: string, accept = 'application/json', signal?: AbortSignal): Promise<T> {
  return whole(await request(prefix + path, { headers: { Accept: accept }, signal }), (r) => r.json());
}

export async function getText(path: string, accept: string): Promise<string> {
  return whole(await request(prefix + path, { headers: { Accept: accept } }), (r) => r.text());
}

/** Reads a file of the API. */
export function getFile(path: string): Promise<Blob> {
  return getOwnFile(prefix + path);
}

/** Reads an answer of the program itself. */
export async function getOwn<T>(path: string, signal?: AbortSignal): Promise<T> {
  return whole(await request(path, { signal }), (r) => r.json());
}

/** Reads a file of the program. */
export async function getOwnFile(path: string): Promise<Blob> {
  return whole(await request(path), (r) => r.blob());
}

/** Reads a text that may go on for long. */
export async function stream(path: string, signal: AbortSignal): Promise<ReadableStreamDefaultReader<string>> {
  const response = await request(prefix + path, { headers: { Accept: 'text/plain,application/json' }, signal });
  return response.body!.pipeThrough(new TextDecoderStream()).getReader();
}

export async function send<T>(method: string, path: string, body: unknown, contentType = 'application/json'): Promise<T> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return whole(await request(prefix + path, { method, headers: { 'Content-Type': contentType, Accept: 'application/json' }, body: text }), (r) => r.json());
}

/** Asks the program itself, which changes nothing. */
export async function ask<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return whole(await request(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body), signal }), (r) => r.json());
}

/** Sends YAML and returns the object as YAML. */
export async function sendYAML(method: string, path: string, yaml: string): Promise<string> {
  return whole(await request(prefix + path, { method, headers: { 'Content-Type': 'application/yaml', Accept: 'application/yaml' }, body: yaml }), (r) => r.text());
}

/** Whether the session has ended. A program that does not answer has not ended it. */
export async function sessionEnded(): Promise<boolean> {
  try {
    await request('/about');
    return false;
  } catch (err) {
    return err instanceof APIError && err.noSession;
  }
}
