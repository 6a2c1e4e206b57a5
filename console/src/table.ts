// The server's Table format, reduced to what the page shows: 10 000 objects must fit.

export interface Column {
  name: string;
  type: string;
  description: string;
  wide: boolean;
}

export interface Row {
  uid: string;
  namespace: string;
  name: string;
  created: number;
  deleting: boolean;
  owners: string[];
  cells: string[];
}

interface Meta {
  uid: string;
  name: string;
  namespace?: string;
  creationTimestamp: string;
  deletionTimestamp?: string;
  resourceVersion?: string;
  ownerReferences?: { uid: string }[];
}

export interface Table {
  kind: string;
  metadata: { resourceVersion: string; continue?: string };
  columnDefinitions: { name: string; type: string; description: string; priority: number }[] | null;
  rows: { cells: unknown[]; object: { metadata: Meta } }[] | null;
}

/** The columns that the page shows. The server writes ages as text, which would go stale, so Age is made here and the others go. */
export function columnsOf(table: Table): { columns: Column[]; places: number[] } {
  const columns: Column[] = [];
  const places: number[] = [];
  (table.columnDefinitions ?? []).forEach((c, i) => {
    if (c.type === 'date' || c.name === 'Name' || c.name === 'Age') return;
    columns.push({ name: c.name, type: c.type, description: c.description, wide: c.priority > 0 });
    places.push(i);
  });
  return { columns, places };
}

/** What tells objects apart. Some, such as metrics, have no UID. */
export function identity(m: { uid?: string; namespace?: string; name: string }): string {
  return m.uid || `${m.namespace ?? ''}/${m.name}`;
}

export function rowsOf(table: Table, places: number[]): Row[] {
  return (table.rows ?? []).map(({ cells, object: { metadata: m } }) => ({
    uid: identity(m),
    namespace: m.namespace ?? '',
    name: m.name,
    created: Date.parse(m.creationTimestamp),
    deleting: m.deletionTimestamp !== undefined,
    owners: (m.ownerReferences ?? []).map((o) => o.uid),
    cells: places.map((i) => text(cells[i])),
  }));
}

function text(cell: unknown): string {
  if (cell === null || cell === undefined) return '';
  return typeof cell === 'object' ? JSON.stringify(cell) : String(cell);
}

/** The version of a watch event, also of a bookmark. */
export function versionOf(table: Table): string {
  return table.metadata?.resourceVersion || table.rows?.[0]?.object.metadata.resourceVersion || '';
}

/** Whether a row matches a search: all words are in its name, namespace or cells; namespace:NAME is exact. */
export function matches(row: Row, words: string[]): boolean {
  return words.every((word) => {
    if (word.startsWith('namespace:')) return row.namespace === word.slice('namespace:'.length);
    return row.name.includes(word) || row.namespace.includes(word) || row.cells.some((c) => c.toLowerCase().includes(word));
  });
}

export function wordsOf(search: string): string[] {
  return search.toLowerCase().split(/\s+/).filter(Boolean);
}

/** Compares by a column; numbers by value, and by name where they are equal. */
export function compare(a: Row, b: Row, by: (row: Row) => string | number): number {
  const x = by(a);
  const y = by(b);
  let order = 0;
  if (typeof x === 'number' && typeof y === 'number') order = x - y;
  else order = natural(String(x), String(y));
  return order || natural(a.name, b.name) || natural(a.namespace, b.namespace);
}

const collator = new Intl.Collator('en', { numeric: true });

export function natural(x: string, y: string): number {
  return collator.compare(x, y);
}
