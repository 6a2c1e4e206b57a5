// The list of a kind. Only the rows on the screen are in the document, so that 10 000 objects scroll as ten do.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { App } from './app';
import { RunsPerHour } from './heat';
import { href, own, title, type Kind } from './kinds';
import { Lanes } from './lanes';
import type { TableList } from './live';
import { Age, CellText, Empty, Until } from './parts';
import { useMay, useMayUsage } from './may';
import { router } from './route';
import { useSource } from './signal';
import { Spark } from './spark';
import { canCreate } from './templates';
import { compare, matches, wordsOf, type Column, type Row } from './table';
import { texts } from './texts';
import { timeIn } from './time';

const rowHeight = 36;
const spare = 8; // rows beyond the edges
const sampled = 100; // rows that decide about the widths of the columns

/** Columns that kubectl shows only with -o wide, but that people look for. */
const wanted = ['Address', 'Reason'];

/** The list of machines has their usage, where the API serves it and the user may read it. */
function useSparks(app: App, kind: Kind): boolean {
  const machines = own(kind) === 'virtualmachines';
  useSource(app.discovery);
  useEffect(() => { if (machines) app.discovery.load(); }, [machines]);
  return useMayUsage(machines && app.discovery.access === true, router.filter);
}

export function ListPage({ app, kind }: { app: App; kind: Kind }) {
  const sparks = useSparks(app, kind);
  const list = app.table(kind, router.filter);
  useSource(list);
  useEffect(() => { document.title = `${title(kind)} · ${texts.product}`; }, [kind]);
  const { search, sort, view } = router.route;
  const rows = useMemo(() => select(list, search, sort), [list, list.generation, search, sort]);
  return (
    <div class="list">
      <div class="bar">
        <h1>{title(kind)}</h1>
        <span class="count" aria-live="polite">{list.phase === 'live' && texts.count(rows.length, list.rows.size)}</span>
        {own(kind) === 'crontabs' && (['timeline', 'heat'] as const).map((v) => (
          <button key={v} type="button" class="small" aria-pressed={view === v} onClick={() => router.set({ view: view === v ? '' : v })}>{texts[v].title}</button>
        ))}
        {canCreate(kind) && <Create kind={kind} />}
        <input class="search" type="search" aria-label={texts.search} placeholder={texts.searchHint} value={search} spellcheck={false}
          onInput={(e) => router.set({ search: e.currentTarget.value }, true)} />
      </div>
      {view === 'timeline' && <NextLanes app={app} kind={kind} list={list} rows={rows} />}
      {view === 'heat' && <RunsPerHour kind={kind} />}
      {!view && <Content kind={kind} list={list} rows={rows} sparks={sparks} />}
    </div>
  );
}

const shownLanes = 24;
const laneSpan = 3 * 3_600_000;

/** The CronTabs that run next on time lines. */
function NextLanes({ app, kind, list, rows }: { app: App; kind: Kind; list: TableList; rows: Row[] }) {
  if (list.phase !== 'live' || !rows.length) return <Content kind={kind} list={list} rows={rows} />;
  const at = (row: Row) => Date.parse(list.cell(row, 'Next')) || Infinity;
  const next = [...rows].sort((a, b) => at(a) - at(b) || 0).slice(0, shownLanes);
  const note = (row: Row) => (at(row) === Infinity ? texts.noNext : <Until at={at(row)} />);
  return (
    <div class="card">
      {rows.length > next.length && <p>{texts.timeline.first(next.length, rows.length)}</p>}
      <Lanes app={app} kind={kind} rows={next} past={laneSpan} coming={laneSpan} note={note} />
    </div>
  );
}

const asked = ['create'] as const;

function Create({ kind }: { kind: Kind }) {
  const may = useMay(kind, kind.namespaced ? router.filter || 'default' : undefined, '', asked);
  return <button type="button" class="small" disabled={may.create !== ''} title={may.create} onClick={() => router.set({ create: '1', from: '', search: '', sort: '', view: '' })}>{texts.create}</button>;
}

function Content({ kind, list, rows, sparks }: { kind: Kind; list: TableList; rows: Row[]; sparks?: boolean }) {
  const name = title(kind);
  if (list.phase === 'denied') return <Empty title={texts.denied(name)}><p>{list.message}</p></Empty>;
  if (list.phase === 'missing') return <Empty title={texts.notInstalled(name)}><p>{texts.notInstalledHint}</p></Empty>;
  if (list.phase === 'failed') return <Empty title={texts.failed(name)}><p>{list.message}</p></Empty>;
  if (rows.length) return <Grid kind={kind} list={list} rows={rows} sparks={sparks} />;
  if (list.phase === 'loading') return <Empty title={texts.loading} />;
  if (!router.route.search) return <Empty title={texts.none(name)} />;
  return <Empty title={texts.noneFound(name, router.route.search)}><button type="button" onClick={() => router.set({ search: '' })}>{texts.clearSearch}</button></Empty>;
}

/** The rows that a search finds, in the order of a column: its name, with a minus for the reverse. */
export function select(list: Pick<TableList, 'rows' | 'columns'>, search: string, sort: string): Row[] {
  const words = wordsOf(search);
  const found: Row[] = [];
  for (const row of list.rows.values()) if (matches(row, words)) found.push(row);
  const name = sort.replace(/^-/, '');
  const place = list.columns.findIndex((c) => c.name === name);
  const numeric = ['integer', 'number'].includes(list.columns[place]?.type);
  const by = (row: Row): string | number => {
    if (name === texts.columns.age) return -row.created;
    if (name === texts.columns.namespace) return row.namespace;
    if (place < 0) return row.name;
    return numeric ? (row.cells[place] === '' ? -Infinity : Number(row.cells[place])) : row.cells[place];
  };
  found.sort((a, b) => compare(a, b, by));
  return sort.startsWith('-') ? found.reverse() : found;
}

function Grid({ kind, list, rows, sparks }: { kind: Kind; list: TableList; rows: Row[]; sparks?: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [from, to] = useWindow(box, rows.length);
  const some = rows.slice(0, sampled);
  // Columns that are empty take the place of others.
  const shown = list.columns.map((c, i) => [c, i] as const).filter(([c, i]) => (!c.wide || wanted.includes(c.name)) && some.some((r) => r.cells[i] !== ''));
  const withNamespace = kind.namespaced && !router.filter;
  const width = 2 + shown.length + (withNamespace ? 1 : 0) + (sparks ? 1 : 0);
  const widths = [
    fit(texts.columns.name, some.map((r) => r.name), 40),
    ...(withNamespace ? [fit(texts.columns.namespace, some.map((r) => r.namespace), 24)] : []),
    ...shown.map(([c, place]) => fit(c.name, some.map((r) => (timeIn(r.cells[place]) ? '10m59s ago' : r.cells[place])), 32)),
    ...(sparks ? [15] : []),
    fit(texts.columns.age, [], 10),
  ];
  return (
    <div class="grid" ref={box} tabIndex={0} role="region" aria-label={title(kind)}>
      <table aria-rowcount={rows.length + 1} style={{ minWidth: `${widths.reduce((sum, w) => sum + w, 0)}ch` }}>
        <colgroup>{widths.map((w, i) => <col key={i} style={{ width: `${w}ch` }} />)}</colgroup>
        <thead>
          <tr aria-rowindex={1}>
            <Header name={texts.columns.name} />
            {withNamespace && <Header name={texts.columns.namespace} />}
            {shown.map(([c]) => <Header key={c.name} name={c.name} description={c.description} number={isNumber(c)} />)}
            {sparks && <th scope="col" class="plain" title={texts.usage.spark}>{texts.usage.column}</th>}
            <Header name={texts.columns.age} />
          </tr>
        </thead>
        <tbody>
          <Spacer height={from * rowHeight} width={width} />
          {rows.slice(from, to).map((row, i) => (
            <tr key={row.uid} aria-rowindex={from + i + 2} class={row.deleting ? 'deleting' : ''}>
              <td title={row.name}><a href={href(kind, row.namespace, row.name)}>{row.name}</a></td>
              {withNamespace && <td>{row.namespace}</td>}
              {shown.map(([c, place]) => <Cell key={c.name} column={c} text={row.cells[place]} />)}
              {sparks && <td>{list.cell(row, 'Status') === 'Running' && <Spark namespace={row.namespace} name={row.name} />}</td>}
              <td><Age at={row.created} /></td>
            </tr>
          ))}
          <Spacer height={(rows.length - to) * rowHeight} width={width} />
        </tbody>
      </table>
    </div>
  );
}

/** The width of a column in characters, by its title and some of its texts. */
function fit(name: string, some: string[], most: number): number {
  return Math.min(Math.max(0.9 * name.length, 5, ...some.map((t) => t.length)), most) + 3; // the padding
}

function isNumber(column: Column): boolean {
  return column.type === 'integer' || column.type === 'number';
}

function Cell({ column, text }: { column: Column; text: string }) {
  return <td class={isNumber(column) ? 'number' : ''} title={text}><CellText column={column.name} text={text} /></td>;
}

function Spacer({ height, width }: { height: number; width: number }) {
  return height > 0 ? <tr class="spacer" aria-hidden="true"><td colSpan={width} style={{ height: `${height}px` }} /></tr> : null;
}

function Header({ name, description, number }: { name: string; description?: string; number?: boolean }) {
  const { sort } = router.route;
  const sorted = sort === name ? 'ascending' : sort === `-${name}` ? 'descending' : undefined;
  const next = sorted === 'ascending' ? `-${name}` : sorted === 'descending' ? '' : name;
  return (
    <th scope="col" aria-sort={sorted} class={number ? 'number' : ''} title={description}>
      <button type="button" onClick={() => router.set({ sort: next }, true)}>{name}<span aria-hidden="true">{sorted === 'ascending' ? ' ↑' : sorted === 'descending' ? ' ↓' : ''}</span></button>
    </th>
  );
}

/** The rows that are on the screen, and some more. */
function useWindow(box: { current: HTMLDivElement | null }, length: number): [number, number] {
  const [view, set] = useState({ top: 0, height: 800 });
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    // In steps, so that not every scrolled pixel renders the table again.
    const measure = () => set((old) => {
      const top = Math.floor(element.scrollTop / rowHeight / 4) * 4 * rowHeight;
      return old.top === top && old.height === element.clientHeight ? old : { top, height: element.clientHeight };
    });
    measure();
    element.addEventListener('scroll', measure, { passive: true });
    const resize = new ResizeObserver(measure);
    resize.observe(element);
    return () => {
      element.removeEventListener('scroll', measure);
      resize.disconnect();
    };
  }, []);
  const from = Math.max(0, Math.min(Math.floor(view.top / rowHeight) - spare, length - 1));
  const to = Math.min(length, Math.ceil((view.top + view.height) / rowHeight) + spare + 4);
  return [from, to];
}
