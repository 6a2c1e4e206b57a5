// All kinds of the API that can be listed.
import { useEffect, useRef } from 'preact/hooks';
import type { App } from './app';
import { Listable } from './discovery';
import { href, title, type Kind } from './kinds';
import { Empty, Scroll } from './parts';
import { router } from './route';
import { useSource } from './signal';
import { natural, wordsOf } from './table';
import { texts } from './texts';

const listable = new Listable();

/** The kinds that a search finds in their names and groups. */
export function findKinds(kinds: Kind[], search: string): Kind[] {
  const words = wordsOf(search);
  const text = (k: Kind) => `${k.kind} ${k.plural} ${k.group || texts.kinds.core} ${title(k)}`.toLowerCase();
  return kinds.filter((k) => words.every((w) => text(k).includes(w))).sort((a, b) => natural(a.kind, b.kind) || natural(a.group, b.group));
}

export function KindsPage({ app }: { app: App }) {
  const { discovery } = app;
  useSource(discovery, listable);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    document.title = `${texts.kinds.title} · ${texts.product}`;
    discovery.load();
    if (router.focusSearch) field.current?.focus();
    router.focusSearch = false;
  }, []);
  const { search } = router.route;
  const all = [...app.kinds, ...discovery.kinds];
  const found = findKinds(all, search);
  const open = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && found.length) router.go(href(found[0], router.filter));
  };
  return (
    <>
      <div class="bar">
        <h1>{texts.kinds.title}</h1>
        <span class="count" aria-live="polite">{discovery.phase === 'there' && texts.count(found.length, all.length)}</span>
        <input ref={field} class="search" type="search" aria-label={texts.search} placeholder={texts.kinds.hint} value={search} spellcheck={false}
          onInput={(e) => router.set({ search: e.currentTarget.value }, true)} onKeyDown={open} />
      </div>
      {discovery.phase === 'failed' && <p class="hint"><strong>{texts.kinds.failed}</strong> {discovery.message}</p>}
      {discovery.phase === 'loading' && <p role="status">{texts.loading}</p>}
      {!found.length && <Empty title={texts.noneFound(texts.kinds.title, search)} />}
      {found.length > 0 && (
        <section class="card">
          <Scroll>
            <table class="plain">
              <thead><tr><th scope="col">{texts.columns.kind}</th><th scope="col">{texts.kinds.group}</th><th scope="col">{texts.version}</th><th scope="col">{texts.kinds.scope}</th></tr></thead>
              <tbody>{found.map((k) => <KindRow key={`${k.group}/${k.plural}`} kind={k} why={k.other ? listable.why(k, router.filter) : ''} />)}</tbody>
            </table>
          </Scroll>
          <p class="message">{texts.kinds.noSecrets}</p>
        </section>
      )}
    </>
  );
}

function KindRow({ kind, why }: { kind: Kind; why?: string }) {
  return (
    <tr>
      <td>{why ? <span class="denied" title={why}>{kind.kind}</span> : <a href={href(kind, router.filter)}>{kind.kind}</a>}{why && <div class="message">{why}</div>}</td>
      <td>{kind.group || texts.kinds.core}</td><td>{kind.version}</td><td>{kind.namespaced ? texts.namespace : texts.kinds.cluster}</td>
    </tr>
  );
}
