// The first page: what is wrong comes before what is right.
import { useEffect, useState } from 'preact/hooks';
import { getJSON } from './api';
import type { App } from './app';
import { Capacity } from './capacity';
import { groups, messageOf, nextRuns, type Group } from './attention';
import { sortedEvents, type Event } from './events';
import { counted, href, path, title } from './kinds';
import { Lanes } from './lanes';
import type { Obj } from './live';
import { Age, Badge, Empty, RemedyText, Scroll, Section, Until } from './parts';
import { router } from './route';
import { useSource } from './signal';
import { toneOf } from './state';
import type { Row } from './table';
import { texts } from './texts';

const shownNames = 5;
const shownRuns = 8;
const hour = 3_600_000;
const pastHours = 2;
const comingHours = 6;
const shownWarnings = 12;

export function Overview({ app }: { app: App }) {
  const lists = app.kinds.map((kind) => ({ kind, list: app.table(kind, router.filter) }));
  useSource(...lists.map((l) => l.list));
  useEffect(() => { document.title = `${texts.overview} · ${texts.product}`; }, []);
  const all = groups(lists);
  const of = (...states: string[]) => all.filter((g) => states.includes(g.state));
  const loading = lists.some((l) => l.list.phase === 'loading');
  const hidden = lists.filter((l) => l.list.phase === 'denied' || l.list.phase === 'failed');
  const wrong = of('wrong');
  const progress = of('progress', 'none');
  const requested = of('requested');
  return (
    <>
      <h1>{texts.overview}</h1>
      <Section title={texts.attention} count={loading ? undefined : count(wrong)}>
        {hidden.map(({ kind, list }) => <Hidden key={kind.plural} kind={title(kind)} phase={list.phase} message={list.message} />)}
        {wrong.map((g) => <Line key={g.kind.plural + g.reason} group={g} explain />)}
        {!wrong.length && <Empty title={loading ? texts.loading : hidden.length ? texts.partlyKnown : texts.nothingWrong} />}
      </Section>
      <NextRuns app={app} />
      <Section title={texts.inProgress} count={count(progress)}>
        {progress.map((g) => <Line key={g.kind.plural + g.state + g.reason} group={g} />)}
        {!progress.length && <Empty title={texts.nothingInProgress} />}
        {requested.length > 0 && <h3>{texts.asRequested}</h3>}
        {requested.map((g) => <Line key={g.kind.plural + g.reason} group={g} />)}
      </Section>
      <Capacity />
      <Warnings app={app} />
    </>
  );
}

function count(all: Group[]): number {
  return all.reduce((n, g) => n + g.rows.length, 0);
}

function Hidden({ kind, phase, message }: { kind: string; phase: string; message: string }) {
  return <p class="hint"><strong>{phase === 'denied' ? texts.denied(kind) : texts.failed(kind)}</strong> {message}</p>;
}

function Line({ group, explain }: { group: Group; explain?: boolean }) {
  const { kind, rows } = group;
  const reason = group.reason || texts.noStatus;
  return (
    <div class="line">
      <div>
        <Badge tone={toneOf[group.state]}>{reason}</Badge> <strong>{counted(kind, rows.length)}</strong>{' '}
        <span class="names">
          {rows.slice(0, shownNames).map((row) => <a key={row.uid} href={href(kind, row.namespace, row.name)}>{label(row)}</a>)}
          {rows.length > shownNames && <a href={`/${kind.plural}?search=${encodeURIComponent(reason)}`}>{texts.more(rows.length - shownNames)}</a>}
        </span>
      </div>
      {explain && <><Message group={group} /><RemedyText plural={kind.plural} reason={group.reason} /></>}
    </div>
  );
}

function label(row: Row): string {
  return row.namespace && !router.filter ? `${row.namespace}/${row.name}` : row.name;
}

/** The message of the first object of a group: the tables do not have it. */
function Message({ group }: { group: Group }) {
  const [text, set] = useState('');
  const first = group.rows[0];
  useEffect(() => {
    const abort = new AbortController();
    getJSON<Obj>(path(group.kind, first.namespace, first.name), undefined, abort.signal).then(
      (object) => set(messageOf(object, group.reason)),
      () => set(''),
    );
    return () => abort.abort();
  }, [first.uid, group.reason]);
  return text ? <p class="message">{text}</p> : null;
}

function NextRuns({ app }: { app: App }) {
  const kind = app.kindOf('crontabs');
  const list = kind && app.table(kind, router.filter);
  const runs = list ? nextRuns(list).slice(0, shownRuns) : [];
  if (!kind) return null;
  return (
    <Section title={texts.nextRuns}>
      {!runs.length && <Empty title={texts.noRuns} />}
      {runs.length > 0 && (
        <Lanes app={app} kind={kind} rows={runs.map((r) => r.row)} past={pastHours * hour} coming={comingHours * hour}
          note={(row) => <><Until at={runs.find((r) => r.row === row)!.at} /> <code>{runs.find((r) => r.row === row)!.schedule}</code></>} />
      )}
    </Section>
  );
}

function Warnings({ app }: { app: App }) {
  const list = app.warnings(router.filter);
  useSource(list);
  const events = sortedEvents(list.objects.values());
  return (
    <Section title={texts.warnings} count={list.phase === 'live' ? events.length : undefined}>
      {list.phase === 'denied' && <Hidden kind={texts.events} phase={list.phase} message={list.message} />}
      {list.phase === 'live' && !events.length && <Empty title={texts.noWarnings} />}
      {events.length > 0 && <EventTable app={app} events={events.slice(0, shownWarnings)} withObject />}
    </Section>
  );
}

/** A table of events. */
export function EventTable({ app, events, withObject }: { app: App; events: Event[]; withObject?: boolean }) {
  return (
    <Scroll>
      <table class="plain">
        <thead><tr>
          <th scope="col">{texts.columns.last}</th>{withObject && <th scope="col">{texts.columns.object}</th>}<th scope="col">{texts.columns.reason}</th>
          <th scope="col">{texts.columns.message}</th><th scope="col" class="number">{texts.columns.count}</th>
        </tr></thead>
        <tbody>{events.map((e) => (
          <tr key={e.uid}>
            <td><Age at={e.last} /></td>
            {withObject && <td><ObjectLink app={app} event={e} /></td>}
            <td>{e.type === 'Warning' ? <Badge tone="bad">{e.reason}</Badge> : e.reason}</td>
            <td class="long">{e.message}</td><td class="number">{e.count}</td>
          </tr>
        ))}</tbody>
      </table>
    </Scroll>
  );
}

function ObjectLink({ app, event }: { app: App; event: Event }) {
  const kind = app.kindNamed(event.kind, event.apiVersion);
  return <>{event.kind} {kind ? <a href={href(kind, event.namespace, event.name)}>{event.name}</a> : event.name}</>;
}
