// The nodes and users of a Cluster, and the snapshots of Clusters and machines.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { APIError, getOwnFile, send } from './api';
import type { App } from './app';
import { bytes } from './capacity';
import { href, path, type Kind } from './kinds';
import { TableList, type Obj } from './live';
import { useMay, useMaySecrets } from './may';
import { Age, Badge, Copy, Empty, Scroll, Section, Until } from './parts';
import { save } from './save';
import { useSource } from './signal';
import { stateOf, toneOf } from './state';
import type { Row } from './table';
import { texts } from './texts';

/** The nodes that the spec of a Cluster has, as text; the default is one simulated node. */
export function nodesOf(object: Obj): string {
  const { real = 0, simulated = object.spec?.nodes ? 0 : 1 } = object.spec?.nodes ?? {};
  return real ? texts.cluster.realNodes(real) : texts.cluster.simulatedNodes(simulated);
}

interface User { name: string; groups: string[]; secret?: { namespace: string; name: string }; notAfter?: string }

/** The users of the spec, with the Secret that each has by now. */
export function usersOf(object: Obj): User[] {
  const status: any[] = object.status?.users ?? [];
  return (object.spec?.users ?? []).map((u: any) => {
    const found = status.find((s) => s.name === u.name);
    return { name: u.name, groups: u.groups ?? [], secret: found?.secretRef, notAfter: found?.notAfter };
  });
}

export function Users({ object }: { object: Obj }) {
  const users = usersOf(object);
  const may = useMaySecrets(users.flatMap((u) => u.secret ?? []));
  const [message, say] = useState('');
  const download = (user: string) => {
    say('');
    void save(getOwnFile(`/kubeconfig/${object.metadata.name}?user=${encodeURIComponent(user)}`), `${object.metadata.name}-${user}.kubeconfig`, say);
  };
  if (!users.length) return null;
  return (
    <Section title={texts.cluster.users} count={users.length}>
      {message && <p class="hint" role="alert">{message}</p>}
      <Scroll>
        <table class="plain">
          <thead><tr>
            <th scope="col">{texts.columns.name}</th><th scope="col">{texts.cluster.groups}</th><th scope="col">{texts.cluster.secret}</th>
            <th scope="col">{texts.cluster.userExpires}</th><th scope="col"><span class="hidden">{texts.cluster.download}</span></th>
          </tr></thead>
          <tbody>{users.map((u) => (
            <tr key={u.name}>
              <th scope="row">{u.name}</th><td>{u.groups.join(', ')}</td>
              <td class="break">{u.secret ? <>{u.secret.namespace}/{u.secret.name} <Copy text={u.secret.name} /></> : texts.cluster.noSecret}</td>
              <td>{u.notAfter && <Until at={Date.parse(u.notAfter)} />}</td>
              <td>{u.secret && <button type="button" class="small" disabled={may[u.secret.name] !== ''} title={may[u.secret.name]} onClick={() => download(u.name)}>{texts.cluster.download}</button>}</td>
            </tr>
          ))}</tbody>
        </table>
      </Scroll>
    </Section>
  );
}

const verbs = ['create'] as const;

/** The kinds with snapshots: the kind of these, its column with the name, the field for it, what its snapshots have in addition, and their column for memory. */
const sources = {
  clusters: { plural: 'clustersnapshots', column: 'Cluster', field: 'clusterName', extra: 'Version', memory: '' },
  virtualmachines: { plural: 'virtualmachinesnapshots', column: 'Machine', field: 'virtualMachineName', extra: 'Disks', memory: 'Memory' },
};

type Source = keyof typeof sources;

/** A name for a snapshot: that of its source and the time. */
export function snapshotName(source: string, now: Date): string {
  return `${source}-${now.toISOString().slice(0, 19).replace(/\D/g, '')}`;
}

/** The snapshots of a Cluster or a machine. */
export function Snapshots({ app, object, of }: { app: App; object: Obj; of: Source }) {
  const kind = app.kindOf(sources[of].plural);
  return kind && object.status?.engine !== 'rke' ? <SnapshotsOf app={app} kind={kind} object={object} of={of} /> : null;
}

function SnapshotsOf({ app, kind, object, of }: { app: App; kind: Kind; object: Obj; of: Source }) {
  const { name, namespace = '' } = object.metadata;
  const { title } = texts.snapshots[of];
  // One of its own: the frame has the one of all namespaces, or of another one, and app.table has one for each kind.
  const list = useMemo(() => new TableList(app.socket, path(kind, namespace)), [app, kind, namespace]);
  useEffect(() => () => list.close(), [list]);
  useSource(list);
  const rows = [...list.rows.values()].filter((r) => list.cell(r, sources[of].column) === name).sort((a, b) => b.created - a.created);
  return (
    <Section title={title} count={list.phase === 'live' ? rows.length : undefined}>
      {list.phase === 'denied' && <p class="hint"><strong>{texts.denied(title)}</strong> {list.message}</p>}
      {list.phase === 'missing' && <Empty title={texts.notInstalled(title)} />}
      {list.phase === 'live' && !rows.length && <Empty title={texts.snapshots.none} />}
      {rows.length > 0 && (
        <Scroll>
          <table class="plain">
            <thead><tr>
              <th scope="col">{texts.columns.name}</th><th scope="col">{texts.columns.status}</th><th scope="col">{texts.snapshots.size}</th><th scope="col">{texts.snapshots[of].extra}</th>
              <th scope="col">{texts.columns.age}</th><th scope="col"><span class="hidden">{texts.snapshots[of].fork}</span></th>
            </tr></thead>
            <tbody>{rows.map((r) => <Snapshot key={r.uid} app={app} kind={kind} of={of} row={r} cell={(c) => list.cell(r, c)} />)}</tbody>
          </table>
        </Scroll>
      )}
      {list.phase !== 'missing' && <Take kind={kind} namespace={namespace} name={name} of={of} />}
    </Section>
  );
}

function Snapshot({ app, kind, of, row, cell }: { app: App; kind: Kind; of: Source; row: Row; cell: (column: string) => string }) {
  const state = row.deleting ? 'progress' : stateOf(cell('Ready'), cell('Reason'));
  const { extra, memory } = sources[of];
  const content = [cell(extra), memory && cell(memory) && texts.snapshots.hasMemory].filter(Boolean).join(', ');
  const create = new URLSearchParams({ create: '1', from: row.name, ...(row.namespace && { namespace: row.namespace }) });
  return (
    <tr class={row.deleting ? 'deleting' : ''}>
      <td class="break"><a href={href(kind, row.namespace, row.name)}>{row.name}</a></td>
      <td><Badge tone={toneOf[state]}>{cell('Reason') || texts.noStatus}</Badge></td>
      <td>{/^\d+$/.test(cell('Size')) ? bytes(Number(cell('Size'))) : cell('Size')}</td><td>{content}</td><td><Age at={row.created} /></td>
      <td>{state === 'ready' && <a href={`${href(app.kindOf(of)!)}?${create}`}>{texts.snapshots[of].fork}</a>}</td>
    </tr>
  );
}

function Take({ kind, namespace, name, of }: { kind: Kind; namespace: string; name: string; of: Source }) {
  const may = useMay(kind, namespace || undefined, '', verbs);
  const [typed, type] = useState('');
  const [memory, setMemory] = useState(false);
  const [message, say] = useState('');
  const take = async (event: Event) => {
    event.preventDefault();
    say('');
    const metadata = { name: typed.trim() || snapshotName(name, new Date()) };
    const snapshot = { apiVersion: `${kind.group}/${kind.version}`, kind: kind.kind, metadata, spec: { [sources[of].field]: name, ...(memory && { memory }) } };
    try {
      await send('POST', `${path(kind, namespace)}?fieldManager=keelson-console&fieldValidation=Strict`, snapshot);
      type('');
    } catch (err) {
      say(err instanceof APIError ? err.message || texts.lostConsole : String(err));
    }
  };
  return (
    <form class="actions" onSubmit={(e) => void take(e)}>
      <label><span class="hidden">{texts.snapshots.name}</span>
        <input value={typed} placeholder={texts.snapshots.name} spellcheck={false} autocomplete="off" onInput={(e) => type(e.currentTarget.value)} />
      </label>
      {sources[of].memory && (
        <label><input type="checkbox" checked={memory} onChange={(e) => setMemory(e.currentTarget.checked)} /> {texts.snapshots.memory}</label>
      )}
      <button type="submit" disabled={may.create !== ''} title={may.create}>{texts.snapshots.take}</button>
      {message && <p class="hint" role="alert">{message}</p>}
    </form>
  );
}
