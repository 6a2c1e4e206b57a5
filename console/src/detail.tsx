// The page of one object.
import { Fragment } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Actions } from './actions';
import type { App } from './app';
import { ClusterPage } from './cluster';
import { Yaml } from './editor';
import { sortedEvents, type Event } from './events';
import { historyOf, see, type Entry, type Seen } from './history';
import { href, own, path, title, type Kind } from './kinds';
import { ObjectList, TableList, type Obj } from './live';
import { PodLogs } from './log';
import { Fold, MachineAccess } from './machine';
import { EventTable } from './overview';
import { Age, Badge, CellText, Empty, RemedyText, Scroll, Section } from './parts';
import { relatedOf } from './related';
import { CronTabPage } from './schedule';
import { useSource } from './signal';
import { Snapshots } from './snapshots';
import { stateOf, toneOf, type State, type Tone } from './state';
import type { Row } from './table';
import { texts } from './texts';

export function DetailPage({ app, kind, namespace, name }: { app: App; kind: Kind; namespace: string; name: string }) {
  const at = path(kind, kind.namespaced ? namespace : '');
  const selector = `&fieldSelector=${encodeURIComponent(`metadata.name=${name}`)}`;
  const found = useOpen(() => new ObjectList(app.socket, at, selector, kind.watch), [at, name]);
  const table = useOpen(() => new TableList(app.socket, at, selector, kind.watch), [at, name]);
  useSource(found, table);
  useEffect(() => { document.title = `${name} · ${title(kind)} · ${texts.product}`; }, [kind, name]);
  const object = [...found.objects.values()].find((o) => o.metadata.name === name); // not all APIs select
  const row = [...table.rows.values()].find((r) => r.name === name);
  if (found.phase === 'loading') return <Empty title={texts.loading} />;
  if (found.phase === 'denied') return <Empty title={texts.denied(name)}><p>{found.message}</p></Empty>;
  if (!object) return <Empty title={found.phase === 'failed' ? texts.failed(name) : texts.gone(name)}><p>{found.message || texts.goneHint}</p></Empty>;
  const { reason, state } = readyOf(kind, object, table, row);
  return (
    <>
      <p class="crumbs"><a href={href(kind)}>{title(kind)}</a>{kind.namespaced && <> / <a href={href(kind, namespace)}>{namespace}</a></>}</p>
      <h1>{name} {state && <Badge tone={toneOf[state]}>{reason || (state === 'ready' ? texts.ready : texts.noStatus)}</Badge>}</h1>
      <Actions key={object.metadata.uid} kind={kind} object={object} />
      {object.metadata.deletionTimestamp && <p class="hint"><strong>{texts.deleting}</strong> <Age at={Date.parse(object.metadata.deletionTimestamp)} /></p>}
      {state === 'wrong' && reason && <RemedyText plural={kind.plural} reason={reason} />}
      <Summary object={object} table={table} row={row} />
      {own(kind) === 'virtualmachines' && <MachineAccess key={object.metadata.uid} object={object} />}
      {own(kind) === 'virtualmachines' && <Snapshots app={app} object={object} of="virtualmachines" />}
      {own(kind) === 'crontabs' && <CronTabPage key={object.metadata.uid} app={app} kind={kind} object={object} />}
      {own(kind) === 'clusters' && <ClusterPage key={object.metadata.uid} app={app} object={object} />}
      {kind.other && kind.group === '' && kind.plural === 'pods' && <Fold title={texts.logs} denied="">{() => <PodLogs namespace={namespace} query={podQuery.Pod!(name)} />}</Fold>}
      {(!kind.other || conditionsOf(object).length > 0) && <Conditions object={object} />}
      <Related app={app} kind={kind} object={object} />
      <Events app={app} kind={kind} object={object} />
      <Yaml kind={kind} object={object} />
    </>
  );
}

/** Whether an object is ready: by its columns, or of another kind by its conditions, if it has that one. */
function readyOf(kind: Kind, object: Obj, table: TableList, row?: Row): { reason: string; state?: State } {
  if (!kind.other) {
    const reason = row ? table.cell(row, 'Reason') : '';
    return { reason, state: row && stateOf(table.cell(row, 'Ready'), reason) };
  }
  const ready = conditionsOf(object).find((c) => c.type === 'Ready');
  return ready ? { reason: ready.reason ?? ready.status, state: stateOf(ready.status, ready.reason ?? '') } : { reason: '' };
}

/** The conditions of an object. Other kinds may have something else under this name. */
function conditionsOf(object: Obj): any[] {
  const found = object.status?.conditions;
  return Array.isArray(found) ? found.filter((c) => c?.type) : [];
}

/** A list that is open while the component is shown. */
function useOpen<T extends { close(): void }>(open: () => T, inputs: unknown[]): T {
  const list = useMemo(open, inputs);
  useEffect(() => () => list.close(), [list]);
  return list;
}

function Summary({ object, table, row }: { object: Obj; table: TableList; row?: Row }) {
  const labels = Object.entries(object.metadata.labels ?? {});
  return (
    <Section title={texts.summary}>
      <dl class="facts">
        {row && table.columns.map((c, i) => row.cells[i] && (
          <div key={c.name}><dt title={c.description}>{c.name}</dt><dd><CellText column={c.name} text={row.cells[i]} /></dd></div>
        ))}
        <div><dt>{texts.columns.age}</dt><dd><Age at={Date.parse(object.metadata.creationTimestamp)} /></dd></div>
        {labels.length > 0 && <div><dt>{texts.labels}</dt><dd>{labels.map(([k, v]) => <code key={k}>{v ? `${k}=${v}` : k}</code>)}</dd></div>}
      </dl>
    </Section>
  );
}

/** True is not good for all: those of a problem begin with a noun of their own. */
const problems = ['RunsStuck', 'RestartRequired', 'SoftwareEmulation', 'Deleting', 'Paused'];

function toneOfCondition(type: string, status: string, reason: string): Tone {
  if (problems.includes(type) || /(Pressure|Unavailable|Fail(ed|ure)|Pending)$/.test(type)) return status === 'True' ? 'busy' : 'plain';
  if (type === 'Ready') return toneOf[stateOf(status, reason)];
  return status === 'True' ? 'good' : 'calm';
}

function Conditions({ object }: { object: Obj }) {
  const conditions = conditionsOf(object);
  return (
    <Section title={texts.conditions}>
      {!conditions.length && <Empty title={texts.noConditions} />}
      {conditions.length > 0 && (
        <Scroll>
          <table class="plain">
            <thead><tr>{(['type', 'status', 'reason', 'message', 'since'] as const).map((c) => <th key={c} scope="col">{texts.columns[c]}</th>)}</tr></thead>
            <tbody>{conditions.map((c) => (
              <tr key={c.type}>
                <th scope="row">{c.type}</th><td><Badge tone={toneOfCondition(c.type, c.status, c.reason)}>{c.status}</Badge></td>
                <td>{c.reason}</td><td class="long">{c.message}</td><td><Age at={Date.parse(c.lastTransitionTime)} /></td>
              </tr>
            ))}</tbody>
          </table>
        </Scroll>
      )}
    </Section>
  );
}

function Related({ app, kind, object }: { app: App; kind: Kind; object: Obj }) {
  const related = relatedOf(own(kind), object);
  const at = related && path(related, related.namespaced ? object.metadata.namespace : '');
  const list = useOpen(() => (at ? new TableList(app.socket, at, related.query) : undefined) ?? nothing, [at, related?.query]);
  useSource(list === nothing ? undefined : (list as TableList));
  const owners = object.metadata.ownerReferences ?? [];
  const podsOf = related && podQuery[related.kind];
  const [opened, open] = useState('');
  if (!related && !owners.length) return null;
  const table = list === nothing ? undefined : (list as TableList);
  const rows = table ? [...table.rows.values()].filter((r) => r.owners.includes(object.metadata.uid)).sort((a, b) => b.created - a.created) : [];
  const columns = (table?.columns ?? []).map((c, i) => [c, i] as const).filter(([c]) => !c.wide).slice(0, 4);
  return (
    <Section title={texts.related}>
      {owners.map((o) => {
        const ownerKind = app.kindNamed(o.kind, o.apiVersion);
        return <p key={o.uid}>{texts.owner}: {o.kind} {ownerKind ? <a href={href(ownerKind, object.metadata.namespace, o.name)}>{o.name}</a> : o.name}</p>;
      })}
      {table?.phase === 'denied' && <p class="hint"><strong>{texts.denied(related!.plural)}</strong> {table.message}</p>}
      {table?.phase === 'live' && !rows.length && <Empty title={texts.none(related!.kind + 's')} />}
      {rows.length > 0 && (
        <Scroll>
          <table class="plain">
            <thead><tr><th scope="col">{related!.kind}</th>{columns.map(([c]) => <th key={c.name} scope="col">{c.name}</th>)}<th scope="col">{texts.columns.age}</th>{podsOf && <th scope="col"><span class="hidden">{texts.logs}</span></th>}</tr></thead>
            <tbody>{rows.map((r) => {
              const page = app.kindOf(related!.plural);
              return (
                <Fragment key={r.uid}>
                  <tr>
                    <td>{page ? <a href={href(page, r.namespace, r.name)}>{r.name}</a> : r.name}</td>
                    {columns.map(([c, i]) => <td key={c.name}><CellText column={c.name} text={r.cells[i]} /></td>)}
                    <td><Age at={r.created} /></td>
                    {podsOf && <td><button type="button" class="small" aria-expanded={opened === r.uid} onClick={() => open(opened === r.uid ? '' : r.uid)}>{texts.logs}</button></td>}
                  </tr>
                  {opened === r.uid && <tr><td colSpan={columns.length + 3}><PodLogs namespace={r.namespace} query={podsOf!(r.name)} /></td></tr>}
                </Fragment>
              );
            })}</tbody>
          </table>
        </Scroll>
      )}
    </Section>
  );
}

const nothing = { close() {} };

/** Selects the Pods of a related object by its name. */
const podQuery: Record<string, ((name: string) => string) | undefined> = {
  Pod: (name) => `fieldSelector=${encodeURIComponent(`metadata.name=${name}`)}`,
};

/** What happened: of a machine also as a history. */
function Events({ app, kind, object }: { app: App; kind: Kind; object: Obj }) {
  const { namespace, uid } = object.metadata;
  // The events of an object without a namespace are in the namespace default.
  const at = path({ group: '', version: 'v1', plural: 'events' }, namespace ?? 'default');
  const list = useOpen(() => new ObjectList(app.socket, at, `&fieldSelector=${encodeURIComponent(`involvedObject.uid=${uid}`)}`), [at, uid]);
  useSource(list);
  const events = sortedEvents(list.objects.values());
  return (
    <>
      {own(kind) === 'virtualmachines' && <History object={object} events={events} />}
      <Section title={texts.events}>
        {list.phase === 'denied' && <p class="hint"><strong>{texts.denied(texts.events)}</strong> {list.message}</p>}
        {list.phase === 'live' && !events.length && <Empty title={texts.noEvents} />}
        {events.length > 0 && <EventTable app={app} events={events} />}
      </Section>
    </>
  );
}

function History({ object, events }: { object: Obj; events: Event[] }) {
  const seen = useRef<Seen>(new Map());
  see(seen.current, object);
  const entries = historyOf(object, seen.current, events);
  return (
    <Section title={texts.history.title}>
      <p class="message">{texts.history.hint}</p>
      <Scroll>
        <table class="plain history">
          <thead><tr>{(['since', 'what', 'reason', 'message'] as const).map((c) => <th key={c} scope="col">{c === 'since' ? texts.columns.when : texts.columns[c]}</th>)}</tr></thead>
          <tbody>{entries.map((e) => (
            <tr key={e.key}>
              <td><Age at={e.at} /></td>
              <td>{whatOf(e)}</td>
              <td>{e.condition?.reason ?? e.event?.reason}</td>
              <td class="long">{e.condition?.message ?? e.event?.message}</td>
            </tr>
          ))}</tbody>
        </table>
      </Scroll>
    </Section>
  );
}

function whatOf({ condition: c, event, object }: Entry) {
  if (c) return <Badge tone={toneOfCondition(c.type, c.status, c.reason)}>{texts.history.became(c.type, c.status)}</Badge>;
  if (event) return <>{event.type === 'Warning' ? <Badge tone="bad">{event.type}</Badge> : texts.history.event} {event.count > 1 && <span class="count">×{event.count}</span>}</>;
  return object && texts.history[object];
}
