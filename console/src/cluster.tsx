// What the page of a Cluster has besides the parts of every object: its operation, kubeconfigs, snapshots, and its objects.
import { Fragment } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { getJSON, getOwnFile, getText, type APIError } from './api';
import type { App } from './app';
import { path } from './kinds';
import { TableList, type Obj } from './live';
import { LogView } from './log';
import { Fold } from './machine';
import { useMayCluster } from './may';
import { Age, Badge, CellText, Copy, Empty, Scroll, Section, Until } from './parts';
import { save } from './save';
import { nodesOf, Snapshots, Users } from './snapshots';
import { useSource } from './signal';
import type { Tone } from './state';
import { matches, natural, wordsOf, type Row } from './table';
import { texts } from './texts';
import { withoutManagedFields } from './yaml';

const tones: Record<string, Tone> = { Processing: 'busy', Succeeded: 'good', Failed: 'bad' };

export function ClusterPage({ app, object }: { app: App; object: Obj }) {
  const { name } = object.metadata;
  const may = useMayCluster(name, object.status?.kubeconfigRef?.secretRef);
  return (
    <>
      <Operation object={object} />
      <Access object={object} may={may.kubeconfig} />
      <Users object={object} />
      <Snapshots app={app} object={object} of="clusters" />
      <Fold title={texts.cluster.objects} denied={may.proxy}>{() => <Objects app={app} name={name} />}</Fold>
    </>
  );
}

function Operation({ object }: { object: Obj }) {
  const operation = object.status?.lastOperation;
  const asked = object.spec?.version;
  const version = object.status?.version;
  const components = (object.status?.conditions ?? []).filter((c: any) => ['ControlPlaneAvailable', 'EtcdHealthy', 'NodesReady', 'UsersReady'].includes(c.type));
  return (
    <Section title={texts.cluster.operation}>
      {!operation && <Empty title={texts.cluster.noOperation} />}
      {operation && (
        <p role="status"><Badge tone={tones[operation.state] ?? 'plain'}>{operation.state}</Badge> <strong>{operation.type}</strong> {operation.description}{' '}
          <span class="count">{operation.attempts > 1 && <>{texts.cluster.attempt(operation.attempts)} </>}<Age at={Date.parse(operation.lastUpdateTime)} /></span>
        </p>
      )}
      <dl class="facts">
        <div><dt>{texts.cluster.version}</dt><dd>{version || texts.unknown}{asked && asked !== version && <> {texts.cluster.asked(asked)}</>}</dd></div>
        {object.status?.engine === 'local' && <div><dt>{texts.cluster.nodes}</dt><dd>{nodesOf(object)}</dd></div>}
        {object.spec?.from?.snapshot && <div><dt>{texts.cluster.from}</dt><dd><a href={`/clustersnapshots/${object.spec.from.snapshot}`}>{object.spec.from.snapshot}</a></dd></div>}
        {components.map((c: any) => <div key={c.type}><dt>{texts.cluster.components[c.type as 'EtcdHealthy']}</dt><dd><Badge tone={c.status === 'True' ? 'good' : ['Stopped', 'Stopping', 'NotObserved'].includes(c.reason) ? 'calm' : ['Starting', 'Waiting'].includes(c.reason) ? 'busy' : 'bad'}>{c.reason}</Badge> {c.status === 'True' ? '' : c.message}</dd></div>)}
        {object.status?.expiresAt && <div><dt>{texts.cluster.expires}</dt><dd><Until at={Date.parse(object.status.expiresAt)} /></dd></div>}
      </dl>
    </Section>
  );
}

function Access({ object, may }: { object: Obj; may?: string }) {
  const { name } = object.metadata;
  const [message, say] = useState('');
  const [kubeconfig, set] = useState<Obj>();
  const ref = object.status?.kubeconfigRef;
  useEffect(() => {
    if (ref) getJSON<Obj>(path({ group: 'clusterprovisioner.rke.io', version: 'v1alpha1', plural: 'kubeconfigs' }, '', ref.name)).then(set, () => set(undefined)); // its own page tells why
  }, [ref?.name, object.metadata.resourceVersion]);
  const { server, notAfter } = kubeconfig?.status ?? {};
  return (
    <Section title={texts.cluster.access}>
      {!ref && <Empty title={texts.cluster.noKubeconfig} />}
      {server && <p>{texts.cluster.endpoint} <code>{server}</code> <Copy text={server} /></p>}
      {notAfter && <p>{texts.cluster.certificate} <Until at={Date.parse(notAfter)} /></p>}
      {message && <p class="hint" role="alert">{message}</p>}
      {ref && (
        <div class="actions">
          <button type="button" disabled={may !== ''} title={may} onClick={() => { say(''); void save(getOwnFile(`/kubeconfig/${name}`), `${name}.kubeconfig`, say); }}>{texts.cluster.download}</button>
        </div>
      )}
    </Section>
  );
}

const kinds = [
  { group: '', version: 'v1', plural: 'namespaces', kind: 'Namespaces' }, { group: '', version: 'v1', plural: 'nodes', kind: 'Nodes' },
  { group: '', version: 'v1', plural: 'pods', kind: 'Pods' }, { group: 'apps', version: 'v1', plural: 'deployments', kind: 'Deployments' },
  { group: 'apps', version: 'v1', plural: 'statefulsets', kind: 'StatefulSets' }, { group: 'apps', version: 'v1', plural: 'daemonsets', kind: 'DaemonSets' },
  { group: 'batch', version: 'v1', plural: 'jobs', kind: 'Jobs' }, { group: 'batch', version: 'v1', plural: 'cronjobs', kind: 'CronJobs' },
  { group: '', version: 'v1', plural: 'services', kind: 'Services' }, { group: '', version: 'v1', plural: 'events', kind: 'Events' },
];

const most = 200; // rows

/** The objects in the Cluster itself, read through the access API. */
function Objects({ app, name }: { app: App; name: string }) {
  const [plural, choose] = useState('namespaces');
  const [search, find] = useState('');
  const kind = kinds.find((k) => k.plural === plural)!;
  const proxy = `/apis/access.cloudnative.tw/v1alpha1/clusters/${name}/proxy`;
  const list = useMemo(() => new TableList(app.socket, proxy + path(kind)), [proxy, plural]);
  useEffect(() => () => list.close(), [list]);
  useSource(list);
  const found = [...list.rows.values()].filter((r) => matches(r, wordsOf(search))).sort((a, b) => natural(a.namespace, b.namespace) || natural(a.name, b.name));
  return (
    <>
      <div class="actions">
        <label><span class="hidden">{texts.columns.kind}</span><select value={plural} onChange={(e) => choose(e.currentTarget.value)}>{kinds.map((k) => <option key={k.plural} value={k.plural}>{k.kind}</option>)}</select></label>
        <input type="search" aria-label={texts.search} placeholder={texts.search} value={search} onInput={(e) => find(e.currentTarget.value)} />
        <span class="count" aria-live="polite">{list.phase === 'live' && texts.count(found.length, list.rows.size)}</span>
      </div>
      {list.phase === 'loading' && <p>{texts.loading}</p>}
      {list.phase !== 'loading' && list.message && <p class="hint">{list.message}</p>}
      {list.phase === 'live' && !found.length && <Empty title={search ? texts.noneFound(kind.kind, search) : texts.none(kind.kind)} />}
      {found.length > 0 && <Table list={list} rows={found.slice(0, most)} proxy={proxy} kind={kind} />}
      {found.length > most && <p>{texts.more(found.length - most)}</p>}
    </>
  );
}

function Table({ list, rows, proxy, kind }: { list: TableList; rows: Row[]; proxy: string; kind: (typeof kinds)[number] }) {
  const [opened, open] = useState('');
  const columns = list.columns.map((c, i) => [c, i] as const).filter(([c]) => !c.wide).slice(0, 5);
  const withNamespace = rows.some((r) => r.namespace);
  const toggle = (key: string) => open(opened === key ? '' : key);
  const at = (r: Row) => proxy + path(kind, r.namespace, r.name);
  return (
    <Scroll>
      <table class="plain">
        <thead><tr>
          {withNamespace && <th scope="col">{texts.columns.namespace}</th>}<th scope="col">{texts.columns.name}</th>
          {columns.map(([c]) => <th key={c.name} scope="col" title={c.description}>{c.name}</th>)}<th scope="col">{texts.columns.age}</th><th scope="col"><span class="hidden">{texts.details}</span></th>
        </tr></thead>
        <tbody>{rows.map((r) => (
          <Fragment key={r.uid}>
            <tr>
              {withNamespace && <td>{r.namespace}</td>}<td class="break">{r.name}</td>
              {columns.map(([c, i]) => <td key={c.name}><CellText column={c.name} text={r.cells[i]} /></td>)}<td><Age at={r.created} /></td>
              <td class="buttons">
                {kind.plural === 'pods' && <button type="button" class="small" aria-expanded={opened === `log ${r.uid}`} onClick={() => toggle(`log ${r.uid}`)}>{texts.logs}</button>}{' '}
                <button type="button" class="small" aria-expanded={opened === r.uid} onClick={() => toggle(r.uid)}>{texts.yaml}</button>
              </td>
            </tr>
            {opened.endsWith(r.uid) && <tr><td colSpan={columns.length + 4}>{opened === r.uid ? <YamlOf path={at(r)} /> : <LogView path={`${at(r)}/log?tailLines=1000&follow=true`} />}</td></tr>}
          </Fragment>
        ))}</tbody>
      </table>
    </Scroll>
  );
}

function YamlOf({ path }: { path: string }) {
  const [text, set] = useState('');
  useEffect(() => {
    getText(path, 'application/yaml').then((yaml) => set(withoutManagedFields(yaml)), (err: APIError) => set(err.message || texts.lostConsole));
  }, [path]);
  return <pre tabIndex={0} aria-label={texts.yaml}>{text || texts.loading}</pre>;
}
