// The kinds of Keelson: their order, titles and keys. The program says which exist.
export interface Kind {
  group: string;
  version: string;
  plural: string;
  kind: string;
  namespaced: boolean;
}

interface Look {
  one: string;
  title: string;
  key: string;
}

const looks: Record<string, Look> = {
  virtualmachines: { one: 'Machine', title: 'Machines', key: 'm' },
  virtualdisks: { one: 'Disk', title: 'Disks', key: 'd' },
  virtualmachineimages: { one: 'Image', title: 'Images', key: 'i' },
  crontabs: { one: 'Schedule', title: 'Schedules', key: 's' },
  clusters: { one: 'Cluster', title: 'Clusters', key: 'c' },
  clustersnapshots: { one: 'Cluster snapshot', title: 'Cluster snapshots', key: 'n' },
  kubeconfigs: { one: 'Kubeconfig', title: 'Kubeconfigs', key: 'k' },
  foos: { one: 'Foo', title: 'Foos', key: 'f' },
  sampleresources: { one: 'SampleResource', title: 'SampleResources', key: 'r' },
};

const order = Object.keys(looks);

export function title(kind: Kind): string {
  return looks[kind.plural]?.title ?? kind.kind + 's';
}

/** Such as 1 Machine, 2 Machines. */
export function counted(kind: Kind, n: number): string {
  return `${n.toLocaleString('en')} ${n === 1 ? (looks[kind.plural]?.one ?? kind.kind) : title(kind)}`;
}

export function key(kind: Kind): string {
  return looks[kind.plural]?.key ?? '';
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
  if (!name) return `/${kind.plural}` + (namespace ? `?namespace=${encodeURIComponent(namespace)}` : '');
  return `/${kind.plural}/` + (kind.namespaced ? `${namespace}/` : '') + name;
}
