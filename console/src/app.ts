// What all pages share.
import type { About } from './api';
import { Discovery } from './discovery';
import { path, segment, sorted, type Kind } from './kinds';
import { ObjectList, TableList } from './live';
import { Socket } from './socket';

export class App {
  readonly kinds: Kind[];
  readonly socket = new Socket();
  /** Users log in with a token. */
  login = false;
  private tables = new Map<string, TableList>();
  readonly discovery = new Discovery();
  private warning?: ObjectList;
  private other?: TableList;

  constructor(readonly about: About) {
    this.kinds = sorted(about.kinds);
  }

  /** The objects of a kind. The lists of the last namespace stay open, so that pages are there at once; of other kinds, one list. */
  table(kind: Kind, namespace: string): TableList {
    const at = path(kind, kind.namespaced ? namespace : '');
    if (kind.other) {
      if (this.other?.path !== at) {
        this.other?.close();
        this.other = new TableList(this.socket, at, '', kind.watch);
      }
      return this.other;
    }
    const found = this.tables.get(at);
    if (found) return found;
    for (const [old, list] of this.tables) {
      if (list.path.endsWith(`/${kind.plural}`) && old !== at) {
        list.close();
        this.tables.delete(old);
      }
    }
    const made = new TableList(this.socket, at);
    this.tables.set(at, made);
    return made;
  }

  /** The Warning events. */
  warnings(namespace: string): ObjectList {
    const at = path({ group: '', version: 'v1', plural: 'events' }, namespace);
    if (this.warning?.path !== at) {
      this.warning?.close();
      this.warning = new ObjectList(this.socket, at, '&fieldSelector=type%3DWarning');
    }
    return this.warning;
  }

  /** The kind of an address. Others are known when the discovery is there. */
  kindOf(name: string): Kind | undefined {
    return this.kinds.find((k) => k.plural === name) ?? this.discovery.kinds.find((k) => segment(k) === name);
  }

  /** The kind of a reference, if it has a page. */
  kindNamed(kind: string, apiVersion: string): Kind | undefined {
    const group = apiVersion.includes('/') ? apiVersion.split('/')[0] : '';
    return [...this.kinds, ...this.discovery.kinds].find((k) => k.kind === kind && k.group === group);
  }

  /** Since when something of what is shown is out of date, and why. */
  stale(): { since: number; message: string } | undefined {
    if (this.socket.lostSince) return { since: this.socket.lostSince, message: '' };
    const lists = [...this.tables.values(), ...(this.warning ? [this.warning] : []), ...(this.other ? [this.other] : [])];
    const stale = lists.filter((l) => l.staleSince);
    if (!stale.length) return undefined;
    return { since: Math.min(...stale.map((l) => l.staleSince)), message: stale[0].message };
  }

  lists(): TableList[] {
    return [...this.tables.values(), ...(this.other ? [this.other] : [])];
  }
}
