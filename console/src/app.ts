// What all pages share.
import type { About } from './api';
import { path, sorted, type Kind } from './kinds';
import { ObjectList, TableList } from './live';
import { Socket } from './socket';

export class App {
  readonly kinds: Kind[];
  readonly socket = new Socket();
  /** Users log in with a token. */
  login = false;
  private tables = new Map<string, TableList>();
  private warning?: ObjectList;

  constructor(readonly about: About) {
    this.kinds = sorted(about.kinds);
  }

  /** The objects of a kind. The lists of the last namespace stay open, so that pages are there at once. */
  table(kind: Kind, namespace: string): TableList {
    const at = path(kind, kind.namespaced ? namespace : '');
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

  kindOf(plural: string): Kind | undefined {
    return this.kinds.find((k) => k.plural === plural);
  }

  /** The kind of a reference, if it has a page. */
  kindNamed(kind: string, apiVersion: string): Kind | undefined {
    return this.kinds.find((k) => k.kind === kind && apiVersion.startsWith(k.group + '/'));
  }

  /** Since when something of what is shown is out of date, and why. */
  stale(): { since: number; message: string } | undefined {
    if (this.socket.lostSince) return { since: this.socket.lostSince, message: '' };
    const lists = [...this.tables.values(), ...(this.warning ? [this.warning] : [])];
    const stale = lists.filter((l) => l.staleSince);
    if (!stale.length) return undefined;
    return { since: Math.min(...stale.map((l) => l.staleSince)), message: stale[0].message };
  }

  lists(): TableList[] {
    return [...this.tables.values()];
  }
}
