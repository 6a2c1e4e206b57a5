// The address of the page is its state: deep links and the back button work.
import { Source } from './signal';

export interface Route {
  /** '' is the overview. */
  plural: string;
  namespace: string;
  name: string;
  search: string;
  sort: string;
  /** How a list is shown; '' for the table. */
  view: string;
  /** The form for a new object. */
  create: boolean;
  /** The snapshot that the new Cluster is made of. */
  from: string;
}

/** Reads an address. The path has a namespace only for an object of a kind with namespaces. */
export function parse(pathname: string, query: string): Route {
  const parts = pathname.split('/').filter(Boolean).map(decodeURIComponent);
  const params = new URLSearchParams(query);
  const [plural = '', a = '', b = ''] = parts;
  return {
    plural,
    namespace: b ? a : (params.get('namespace') ?? ''),
    name: b || a,
    search: params.get('search') ?? '',
    sort: params.get('sort') ?? '',
    view: params.get('view') ?? '',
    create: params.has('create') && !a,
    from: params.get('from') ?? '',
  };
}

class Router extends Source {
  /** What is not in the address: the namespace filter under the page of an object. */
  filter = '';
  /** The page that is opened next begins with its search. */
  focusSearch = false;

  constructor() {
    super();
    if (typeof addEventListener === 'undefined') return;
    addEventListener('popstate', () => this.changed());
    this.filter = new URLSearchParams(location.search).get('namespace') ?? '';
  }

  get route(): Route {
    return parse(location.pathname, location.search);
  }

  go(href: string, replace = false): void {
    if (replace) history.replaceState(null, '', href);
    else history.pushState(null, '', href);
    if (!replace) scrollTo(0, 0);
    this.changed();
  }

  /** Changes parameters of the address. */
  set(changes: Record<string, string>, replace = false): void {
    const params = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value) params.set(name, value);
      else params.delete(name);
    }
    const query = params.toString();
    this.go(location.pathname + (query && `?${query}`), replace);
  }
}

export const router = new Router();

/** Follows links of the page without loading it again. */
export function followLinks(): void {
  addEventListener('click', (event) => {
    const link = (event.target as Element).closest?.('a');
    if (!link || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (link.origin !== location.origin || link.target || link.hash || link.hasAttribute('download')) return;
    event.preventDefault();
    router.go(link.pathname + link.search);
  });
}
