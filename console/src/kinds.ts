// The kinds of Keelson: their order, titles and keys. The program says which exist.
export interface Kind {
  group: string;
  version: string;
  plural: string;
  kind: string;
  namespaced: boolean;
  /** Not one of Keelson's. */
  other?: boolean;
  /** False if the kind can only be read again. */
  watch?: boolean;
  /** False if it has no such verb. */
  update?: boolean;
}

interface Look {
  one: string;
  title: string;
  key: string;
}

const looks: Record<string, Look> = {
  virtualmachines: { one: 'Machine', title: 'Machines', key: 'm' },
  virtualmachinesets: { one: 'Machine set', title: 'Machine sets', key: 't' },
  virtualdisks: { one: 'Disk', title: 'Disks', key: 'd' },
  virtualmachinesnapshots: { one: 'Machine snapshot', title: 'Machine snapshots', key: 'p' },
  virtualmachineimages: { one: 'Image', title: 'Images', key: 'i' },
  crontabs: { one: 'Schedule', title: 'Schedules', key: 's' },
  clusters: { one: 'Cluster', title: 'Clusters', key: 'c' },
  clustersnapshots: { one: 'Cluster snapshot', title: 'Cluster snapshots', key: 'n' },
  kubeconfigs: { one: 'Kubeconfig', title: 'Kubeconfigs', key: 'k' },
  foos: { one: 'Foo', title: 'Foos', key: 'f' },
  sampleresources: { one: 'SampleResource', title: 'SampleResources', key: 'r' },
};

const order = Object.keys(looks);

const lookOf = (kind: Kind): Look | undefined => (kind.other ? undefined : looks[kind.plural]);

/** The plural of a kind of Keelson; '' for others, which may have the same. */
export const own = (kind: Kind): string => (kind.other ? '' : kind.plural);

/** How addresses name a kind: others by their group as well, as kubectl does. */
export const segment = (kind: Kind): string => (kind.other && kind.group ? `${kind.plural}.${kind.group}` : kind.plural);

export function title(kind: Kind): string {
  return lookOf(kind)?.title ?? plural(kind.kind);
}

/** Such as NetworkPolicies. */
function plural(kind: string): string {
  if (/(s|x|ch|sh)$/.test(kind)) return kind.endsWith('Endpoints') ? kind : kind + 'es';
  return /[^aeiou]y$/.test(kind) ? kind.slice(0, -1) + 'ies' : kind + 's';
}

/** Such as 1 Machine, 2 Machines. */
export function counted(kind: Kind, n: number): string {
  return `${n.toLocaleString('en')} ${n === 1 ? (lookOf(kind)?.one ?? kind.kind) : title(kind)}`;
}

export function key(kind: Kind): string {
  return lookOf(kind)?.key ?? '';
}

/** Known kinds come first, in their order. */
export function sorted(kinds: Kind[]): Kind[] {
  const place = (k: Kind) => (order.includes(k.plural) ? order.indexOf(k.plural) : order.length);
  return [...kinds].sort((a, b) => place(a) - place(b) || a.plural.localeCompare(b.plural));
}

/** The path of the objects of a kind in the API. */
export function path(kind: Pick<Kind, 'group' | 'version' | 'plural'>, namespace?: string, name?: string): string {
  const base = kind.group === '' ? `/api/${kind.version}` : `/apis/${kind.group}/${kind.version}`;
  return base + (namespace ? `/namespaces/${namespace}` : '') + `/${kind.plural}` + (name ? `/${name}` : '');
}

/** The path of a page of this application. */
export function href(kind: Kind, namespace?: string, name?: string): string {
  if (!name) return `/${segment(kind)}` + (namespace ? `?namespace=${encodeURIComponent(namespace)}` : '');
  return `/${segment(kind)}/` + (kind.namespaced ? `${namespace}/` : '') + name;
}
