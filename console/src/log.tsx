// A log that is shown as it grows.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { APIError, getJSON, stream } from './api';
import { path } from './kinds';
import type { Obj } from './live';
import { Copy } from './parts';
import { texts } from './texts';

/** How much of the end of a log is kept, in characters. */
const kept = 256 << 10;

/** Escape sequences of terminals, and what they leave of a line that is written again. */
const sequences = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1a\x7f]/g;

/** The text of a log without control characters; of a long one the end, from the begin of a line. */
export function readable(text: string): string {
  const plain = text.replace(/\r+\n/g, '\n').replace(sequences, '');
  return plain.length > kept ? plain.slice(plain.indexOf('\n', plain.length - kept) + 1) : plain;
}

const pods = { group: '', version: 'v1', plural: 'pods' };

/** The log of a container of the newest Pod that a query selects. */
export function PodLogs({ namespace, query }: { namespace: string; query: string }) {
  const [pod, setPod] = useState<Obj | null>();
  const [container, choose] = useState('');
  const [message, say] = useState('');
  useEffect(() => {
    getJSON<{ items: Obj[] }>(`${path(pods, namespace)}?${query}`).then(
      ({ items }) => setPod(newest(items) ?? null),
      (err) => say(err instanceof APIError ? err.message || texts.lostConsole : String(err)),
    );
  }, [namespace, query]);
  if (message) return <p class="hint">{message}</p>;
  if (!pod) return <p>{pod === null ? texts.noPod : texts.loading}</p>;
  const names = containersOf(pod);
  const shown = container || names[0];
  return (
    <>
      {names.length > 1 && (
        <label>{texts.container} <select value={shown} onChange={(e) => choose(e.currentTarget.value)}>{names.map((n) => <option key={n}>{n}</option>)}</select></label>
      )}
      <LogView path={`${path(pods, namespace, pod.metadata.name)}/log?container=${shown}&tailLines=1000&follow=true`} />
    </>
  );
}

export function newest(items: Obj[]): Obj | undefined {
  return [...items].sort((a, b) => b.metadata.creationTimestamp.localeCompare(a.metadata.creationTimestamp))[0];
}

/** The containers of a Pod, those of its work first. */
export function containersOf(pod: Obj): string[] {
  return [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])].map((c: { name: string }) => c.name);
}

export function LogView({ path }: { path: string }) {
  const [text, set] = useState('');
  const [message, say] = useState(texts.loading as string);
  useEffect(() => {
    const abort = new AbortController();
    set('');
    say(texts.loading);
    follow(path, abort.signal, set, say).catch((err) => {
      if (!abort.signal.aborted) say(err instanceof APIError ? failure(err) : texts.lostConsole);
    });
    return () => abort.abort();
  }, [path]);
  const shown = readable(text);
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown]);
  return (
    <>
      <div class="actions"><Copy text={shown} /><span class="message" role="status">{message}</span></div>
      <pre ref={box} class="log" tabIndex={0} onScroll={({ currentTarget: p }) => { atEnd.current = p.scrollTop + p.clientHeight >= p.scrollHeight - 8; }}>{shown}</pre>
    </>
  );
}

async function follow(path: string, signal: AbortSignal, set: (change: (old: string) => string) => void, say: (message: string) => void): Promise<void> {
  const reader = await stream(path, signal);
  say(texts.following);
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const more = part.value;
    set((old) => (old + more).slice(-2 * kept));
  }
  say(texts.logEnded);
}

export function failure(err: APIError): string {
  return err.code === 404 && err.noAPI ? texts.noAccess : err.message || texts.lostConsole;
}
