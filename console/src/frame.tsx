// What surrounds each page: navigation, the state of the connection, keys and their help.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { App } from './app';
import { send } from './api';
import { href, key, title, type Kind } from './kinds';
import { groups } from './attention';
import { Cancel, Dialog } from './parts';
import { router } from './route';
import { useSource } from './signal';
import { texts } from './texts';
import { clock } from './time';

export function Frame({ app, children }: { app: App; children: ComponentChildren }) {
  const [help, setHelp] = useState(false);
  const [menu, setMenu] = useState(false);
  useEffect(() => keys(app, setHelp), []);
  useEffect(() => router.subscribe(() => setMenu(false)), []);
  return (
    <>
      <a class="skip" href="#content" onClick={(e) => { e.preventDefault(); document.getElementById('content')?.focus(); }}>{texts.skip}</a>
      <header class="top">
        <button type="button" class="menu" aria-expanded={menu} aria-controls="navigation" onClick={() => setMenu(!menu)}>{texts.menu}</button>
        <a class="product" href={withFilter('/')}><img src="/assets/icon.svg" alt="" width="22" height="22" />{texts.product}</a>
        <span class="cluster" title={app.about.cluster}>{app.about.cluster}</span>
        <Namespaces app={app} />
        <User />
        <button type="button" class="small" aria-label={texts.help} title={`${texts.help} (?)`} onClick={() => setHelp(true)}>?</button>
      </header>
      <Connection app={app} />
      <div class="body">
        <nav id="navigation" class={menu ? 'open' : ''} aria-label={texts.navigation}>
          <NavLink to="/" label={texts.overview} current={router.route.plural === ''} />
          {app.kinds.map((kind) => <KindLink key={kind.plural} app={app} kind={kind} />)}
          <NavLink to="/kinds" label={texts.kinds.title} current={router.route.plural === 'kinds' || !!app.kindOf(router.route.plural)?.other} />
          <p class="version">{texts.version} {app.about.version}</p>
        </nav>
        <main id="content" tabIndex={-1}>{children}</main>
      </div>
      {help && <Help app={app} close={() => setHelp(false)} />}
    </>
  );
}

/** The address with the namespace of the lists. */
function withFilter(to: string): string {
  return router.filter ? `${to}?namespace=${encodeURIComponent(router.filter)}` : to;
}

function NavLink({ to, label, current, count, wrong }: { to: string; label: string; current: boolean; count?: number; wrong?: number }) {
  return (
    <a href={withFilter(to)} aria-current={current ? 'page' : undefined}>
      <span>{label}</span>
      {!!wrong && <span class="badge bad" title={`${wrong} ${texts.attention}`}>{wrong.toLocaleString('en')}</span>}
      {count !== undefined && <span class="count">{count.toLocaleString('en')}</span>}
    </a>
  );
}

function KindLink({ app, kind }: { app: App; kind: Kind }) {
  const list = app.table(kind, router.filter);
  useSource(list);
  if (list.phase === 'missing') return null;
  const wrong = groups([{ kind, list }]).filter((g) => g.state === 'wrong').reduce((n, g) => n + g.rows.length, 0);
  return <NavLink to={href(kind)} label={title(kind)} current={router.route.plural === kind.plural} count={list.phase === 'denied' || list.phase === 'loading' ? undefined : list.rows.size} wrong={wrong} />;
}

/** Says that something shown is not current, since when and why. */
function Connection({ app }: { app: App }) {
  useSource(app.socket, ...app.lists());
  const stale = app.stale();
  return (
    <div role="status" aria-live="polite" class={stale ? 'lost' : ''}>
      {stale && <>{texts.lost(stale.message || texts.lostConsole)} {texts.asOf(clock(stale.since))}</>}
    </div>
  );
}

const namespaces = { group: '', version: 'v1', plural: 'namespaces', kind: 'Namespace', namespaced: false };

/** A text field, because a user who may not list the namespaces still knows their own. */
function Namespaces({ app }: { app: App }) {
  const list = app.table(namespaces, '');
  useSource(list);
  const choose = (value: string) => {
    router.filter = value.trim();
    const { plural, name } = router.route;
    router.go(withFilter(name ? `/${plural}` : location.pathname));
  };
  return (
    <label class="namespace">
      <span class="hidden">{texts.namespace}</span>
      <input key={router.filter} type="search" list="namespaces" placeholder={texts.allNamespaces} defaultValue={router.filter} spellcheck={false} autocomplete="off"
        onChange={(e) => choose(e.currentTarget.value)} />
      <datalist id="namespaces">{[...list.rows.values()].map((r) => <option key={r.uid} value={r.name} />)}</datalist>
    </label>
  );
}

function User() {
  const [name, set] = useState('');
  useEffect(() => {
    send<any>('POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews', { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' })
      .then((review) => set(review.status?.userInfo?.username ?? ''), () => set(''));
  }, []);
  return name ? <span class="user" title={texts.user(name)}>{name}</span> : null;
}

/** Whether keys are typed into an element. */
function isTyped(element: HTMLElement): boolean {
  return element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName);
}

/** Listens to the keys of all pages. */
function keys(app: App, setHelp: (open: boolean) => void): () => void {
  let went = -Infinity; // when g was pressed, not when a busy page gets to it
  const listen = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    if (event.key === '/' && !isTyped(target)) event.preventDefault(); // the search of Firefox
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    if (isTyped(target)) {
      if (event.key === 'Escape' && !event.defaultPrevented) target.blur();
      return;
    }
    const after = went;
    went = -Infinity;
    if (event.timeStamp - after < 1500) {
      const kind = app.kinds.find((k) => key(k) === event.key);
      if (event.key === 'o') router.go(withFilter('/'));
      else if (event.key === 'a') router.go(withFilter('/kinds'));
      else if (kind) router.go(withFilter(href(kind)));
      return;
    }
    if (event.key === 'g') went = event.timeStamp;
    else if (event.key === '?') setHelp(true);
    else if (event.key === 'u') up(app);
    else if (event.key === 'j' || event.key === 'k') move(event.key === 'j' ? 1 : -1);
  };
  // When the key is released, so that it is not typed into the field.
  const release = (event: KeyboardEvent) => {
    if (event.key === '/' && !isTyped(event.target as HTMLElement)) focusSearch();
  };
  addEventListener('keydown', listen);
  addEventListener('keyup', release);
  return () => {
    removeEventListener('keydown', listen);
    removeEventListener('keyup', release);
  };
}

function focusSearch(): void {
  const field = document.querySelector<HTMLInputElement>('input.search');
  if (field) return field.focus();
  router.focusSearch = true;
  router.go(withFilter('/kinds'));
}

function up(app: App): void {
  const { plural, name } = router.route;
  router.go(withFilter(name ? `/${plural}` : app.kindOf(plural)?.other ? '/kinds' : '/'));
}

/** Moves the focus between the rows of a list. */
function move(by: number): void {
  const links = [...document.querySelectorAll<HTMLElement>('main td a')];
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}

function Help({ app, close }: { app: App; close: () => void }) {
  const rows: [string, string][] = [
    ['/', texts.keys.search], ['j k', texts.keys.move], ['Enter', texts.keys.open], ['u', texts.keys.up], ['g o', texts.keys.overview], ['g a', texts.keys.kinds],
    ...app.kinds.filter(key).map((k): [string, string] => [`g ${key(k)}`, texts.keys.go(title(k))]), ['?', texts.keys.help],
  ];
  return (
    <Dialog title={texts.help} close={close}>
      <dl class="keys">{rows.map(([keys, what]) => <div key={keys}><dt>{keys.split(' ').map((k) => <kbd key={k}>{k}</kbd>)}</dt><dd>{what}</dd></div>)}</dl>
      <Cancel label={texts.close} />
    </Dialog>
  );
}
