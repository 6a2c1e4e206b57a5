// Lists of objects that are kept up to date by watches.
import { APIError, getJSON, type Status } from './api';
import { backoff } from './backoff';
import { Source } from './signal';
import type { Socket } from './socket';
import { columnsOf, identity, rowsOf, versionOf, type Column, type Row, type Table } from './table';

const pageSize = 500;
const retryRefused = 30_000;
const readAgain = 15_000; // of a kind without watches

export type Phase = 'loading' | 'live' | 'denied' | 'missing' | 'failed';

/** A list, then a watch from its version. What goes wrong is tried again, from the list where the version is too old. */
abstract class Live<Page extends { metadata: { resourceVersion?: string; continue?: string } }> extends Source {
  phase: Phase = 'loading';
  /** Why, if it is not live. */
  message = '';
  /** Since when the API does not answer; 0 while it does. */
  staleSince = 0;
  /** Changes with the objects. */
  generation = 0;

  protected version = '';
  private failures = 0;
  private closed = false;
  private stop = () => {};

  /** The query selects objects, and begins with &. */
  constructor(
    private readonly socket: Socket,
    readonly path: string,
    private readonly query: string,
    private readonly accept: string,
    private readonly watched = true,
  ) {
    super();
    void this.list();
  }

  close(): void {
    this.closed = true;
    this.stop();
  }

  /** Forgets all objects. */
  protected abstract reset(): void;
  /** Takes the first or another page of a list. Until the last one, what was shown before stays. */
  protected abstract take(page: Page, first: boolean, last: boolean): void;
  protected abstract apply(type: string, object: any): void;
  protected abstract versionIn(object: any): string;

  private async list(): Promise<void> {
    try {
      await this.listPages();
    } catch (err) {
      if (!(err instanceof APIError)) throw err;
      this.end({ kind: 'Status', code: err.code, message: err.message });
    }
  }

  private async listPages(): Promise<void> {
    let next = '';
    let first = true;
    do {
      const from = next && `&continue=${encodeURIComponent(next)}`;
      const page = await getJSON<Page>(`${this.path}?limit=${pageSize}${this.query}${from}`, this.accept);
      if (this.closed) return;
      next = page.metadata.continue ?? '';
      if (first) this.version = page.metadata.resourceVersion ?? '';
      this.take(page, first, !next);
      first = false;
      if (!next) this.phase = 'live';
      this.generation++;
      this.changed();
    } while (next);
    this.recover();
    if (this.watched) this.watch();
    else this.later(() => void this.list(), readAgain);
  }

  private recover(): void {
    this.failures = 0;
    if (this.staleSince === 0 && this.message === '') return;
    this.staleSince = 0;
    this.message = '';
    this.changed();
  }

  private watch(): void {
    this.stop = this.socket.watch({
      path: () => `${this.path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion=${this.version}${this.query}`,
      open: () => this.recover(),
      event: (event) => this.receive(event.type, event.object),
      end: (status) => this.end(status),
    });
  }

  private receive(type: string, object: any): void {
    if (type === 'ERROR') {
      this.stop();
      return this.end(object as Status);
    }
    this.version = this.versionIn(object) || this.version;
    if (type === 'BOOKMARK') return;
    this.apply(type, object);
    this.generation++;
    this.changed();
  }

  private end(status: Status): void {
    if (this.closed) return;
    switch (status.code) {
      case 200: // the usual end after some minutes
        return this.later(() => this.watch(), backoff(0));
      case 410: // the version is too old
        return this.later(() => void this.list(), backoff(this.failures++));
      case 403:
      case 404:
        this.phase = status.code === 403 ? 'denied' : 'missing';
        this.message = status.message ?? '';
        this.reset();
        this.generation++;
        this.later(() => void this.list(), retryRefused);
        break;
      default:
        if (this.phase !== 'live') this.phase = 'failed';
        this.message = status.message ?? '';
        this.staleSince ||= Date.now();
        this.later(() => (this.phase === 'live' && this.watched ? this.watch() : void this.list()), backoff(this.failures++));
    }
    this.changed();
  }

  private later(act: () => void, delay: number): void {
    setTimeout(() => this.closed || act(), delay);
  }
}

/** The objects of a kind as rows with the server's columns. */
export class TableList extends Live<Table> {
  columns: Column[] = [];
  rows = new Map<string, Row>();
  private places: number[] = [];
  private coming = new Map<string, Row>();

  constructor(socket: Socket, path: string, query = '', watched = true) {
    super(socket, path, '&includeObject=Metadata' + query, 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json', watched);
  }

  /** The text of a cell by the name of its column; '' without such a column. */
  cell(row: Row, name: string): string {
    return row.cells[this.columns.findIndex((c) => c.name === name)] ?? '';
  }

  protected reset(): void {
    this.rows = new Map();
  }

  protected take(page: Table, first: boolean, last: boolean): void {
    if (first) this.coming = new Map();
    if (page.columnDefinitions) ({ columns: this.columns, places: this.places } = columnsOf(page));
    for (const row of rowsOf(page, this.places)) this.coming.set(row.uid, row);
    if (last || this.phase === 'loading') this.rows = this.coming;
  }

  protected apply(type: string, table: Table): void {
    for (const row of rowsOf(table, this.places)) {
      if (type === 'DELETED') this.rows.delete(row.uid);
      else this.rows.set(row.uid, row);
    }
  }

  protected versionIn(table: Table): string {
    return versionOf(table);
  }
}

/** An object of the API. */
export interface Obj {
  apiVersion?: string;
  kind?: string;
  metadata: {
    name: string;
    namespace?: string;
    uid: string;
    resourceVersion: string;
    generation?: number;
    creationTimestamp: string;
    deletionTimestamp?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    ownerReferences?: { apiVersion: string; kind: string; name: string; uid: string }[];
  };
  spec?: any;
  status?: any;
  [field: string]: any;
}

interface ObjectPage {
  metadata: { resourceVersion?: string; continue?: string };
  items: Obj[];
}

/** Few whole objects. */
export class ObjectList extends Live<ObjectPage> {
  objects = new Map<string, Obj>();
  private coming = new Map<string, Obj>();

  constructor(socket: Socket, path: string, query: string, watched = true) {
    super(socket, path, query, 'application/json', watched);
  }

  protected reset(): void {
    this.objects = new Map();
  }

  protected take(page: ObjectPage, first: boolean, last: boolean): void {
    if (first) this.coming = new Map();
    for (const object of page.items) this.coming.set(identity(object.metadata), object);
    if (last) this.objects = this.coming;
  }

  protected apply(type: string, object: Obj): void {
    if (type === 'DELETED') this.objects.delete(identity(object.metadata));
    else this.objects.set(identity(object.metadata), object);
  }

  protected versionIn(object: Obj): string {
    return object.metadata.resourceVersion;
  }
}
