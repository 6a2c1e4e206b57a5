// The time lines of several CronTabs: their runs of the last hours, and those of the coming ones.
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { APIError, getJSON } from './api';
import type { App } from './app';
import { href, path, type Kind } from './kinds';
import { ObjectList, type Obj } from './live';
import { previews, runsOf, timesOf, type Preview } from './runs';
import { useSource } from './signal';
import type { Row } from './table';
import { texts } from './texts';
import { Timeline, useSteps } from './timeline';
import { isHalted } from './verbs';

const perLane = 100; // coming runs
const refresh = 30_000;
const jobs = { group: 'batch', version: 'v1', plural: 'jobs' };

/** The time lines of rows. The tables do not have the whole schedules, so the objects are read: there must be few. */
export function Lanes({ app, kind, rows, past, coming, note }: { app: App; kind: Kind; rows: Row[]; past: number; coming: number; note: (row: Row) => ComponentChildren }) {
  const now = useSteps(past + coming);
  const [known, message] = useComing(kind, rows, coming);
  const list = useJobs(app, rows);
  const lanes = rows.map((row) => {
    const name = row.namespace ? `${row.namespace}/${row.name}` : row.name;
    const soon = known.get(row.uid);
    return {
      key: row.uid, name, past: list ? runsOf(list.objects.values(), row.uid) : [],
      coming: soon,
      label: <><a href={href(kind, row.namespace, row.name)} title={name}>{row.name}</a> <span class="count" title={soon?.words.join('; ')}>{note(row)}</span></>,
    };
  });
  return (
    <>
      {message && <p class="hint">{message}</p>}
      {list?.phase === 'denied' && <p class="hint"><strong>{texts.denied('Jobs')}</strong> {list.message}</p>}
      <Timeline lanes={lanes} from={now - past} to={now + coming} now={now} />
    </>
  );
}

/** The coming runs of each row that is not suspended, renewed when a row changes and from time to time. */
function useComing(kind: Kind, rows: Row[], coming: number): [Map<string, Preview>, string] {
  const [known, set] = useState(new Map<string, Preview>());
  const [message, say] = useState('');
  const [turn, next] = useState(0);
  const last = useRef(0);
  const state = rows.map((r) => r.uid + r.cells.join()).join();
  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      last.current = Date.now();
      const objects = (await Promise.all(rows.map((r) => getJSON<Obj>(path(kind, r.namespace, r.name), undefined, abort.signal).catch(skipMissing)))).filter((o) => o !== undefined);
      const active = objects.filter((o) => !isHalted(o));
      const now = Date.now();
      const found = active.length ? await previews(active.map(timesOf), now, now + coming + refresh, perLane, abort.signal) : [];
      set(new Map(active.map((o, i) => [o.metadata.uid, found[i]])));
      say('');
    };
    // A schedule of each second changes its row as often.
    const start = setTimeout(() => read().catch((err) => abort.signal.aborted || say(err instanceof APIError ? err.message || texts.lostConsole : String(err))), Math.max(0, last.current + 2000 - Date.now()));
    const again = setTimeout(() => next(turn + 1), refresh);
    return () => { abort.abort(); clearTimeout(start); clearTimeout(again); };
  }, [state, coming, turn]);
  return [known, message];
}

/** An object that was deleted since the list was read. */
function skipMissing(err: unknown): undefined {
  if (!(err instanceof APIError) || err.code !== 404) throw err;
}

/** The Jobs of the rows, with one watch. */
function useJobs(app: App, rows: Row[]): ObjectList | undefined {
  const names = [...new Set(rows.map((r) => r.name))].sort().join();
  const namespaces = [...new Set(rows.map((r) => r.namespace))];
  const at = path(jobs, namespaces.length === 1 ? namespaces[0] : '');
  const list = useMemo(
    () => (names ? new ObjectList(app.socket, at, `&labelSelector=${encodeURIComponent(`crontab.stable.example.com/name in (${names})`)}`) : undefined),
    [at, names],
  );
  useEffect(() => () => list?.close(), [list]);
  useSource(list);
  return list;
}
