// What all CronTabs will do in seven days, as the program computes and draws it.
import { useEffect, useState } from 'preact/hooks';
import { APIError, getOwn } from './api';
import { href, title, type Kind } from './kinds';
import { Empty, Scroll } from './parts';
import { router } from './route';
import { texts } from './texts';
import { exact, zone } from './time';

interface Heat {
  cronTabs: number;
  runs: number;
  busiest?: { time: string; runs: number; cronTabs: string[] }[];
  spread?: { cronTabs: string[]; runs: number };
  clocks?: { time: string; cronTab: string; count: number; note: string }[];
  mostActive?: number;
  mostActiveAt?: string;
  /** With times in the format of Go. */
  overlaps?: { cronTab: string; duration: string; interval: string }[];
  svg: string;
  more: boolean;
  noJobs?: string;
}

const named = 5; // CronTabs of a minute

export function RunsPerHour({ kind }: { kind: Kind }) {
  const [heat, set] = useState<Heat>();
  const [message, say] = useState('');
  const [from, choose] = useState(() => new Date().toLocaleDateString('sv')); // as 2026-12-24
  const namespace = router.filter;
  useEffect(() => {
    const abort = new AbortController();
    const query = new URLSearchParams({ namespace, zone, from });
    getOwn<Heat>(`/timeline?${query}`, abort.signal).then(
      (found) => { set(found); say(''); },
      (err) => abort.signal.aborted || say(err instanceof APIError ? err.message || texts.lostConsole : String(err)),
    );
    return () => abort.abort();
  }, [namespace, from]);
  if (message) return <Empty title={texts.failed(title(kind))}><p>{message}</p></Empty>;
  if (!heat) return <Empty title={texts.loading} />;
  const busiest = heat.busiest ?? [];
  const link = (name: string) => <a key={name} href={href(kind, ...(name.split('/') as [string, string]))}>{name}</a>;
  return (
    <div class="card">
      {heat.more && <p class="hint">{texts.heat.more}</p>}
      <label class="span">{texts.heat.from} <input type="date" max="9999-12-31" value={from} onChange={(e) => choose(e.currentTarget.value)} /></label>
      <p class="message">{texts.heat.hint}</p>
      <Scroll><img src={`data:image/svg+xml,${encodeURIComponent(heat.svg)}`} alt={texts.heat.alt(heat.cronTabs, heat.runs)} /></Scroll>
      {busiest.length > 0 && (
        <Scroll>
          <table class="plain">
            <thead><tr><th scope="col">{texts.heat.busiest}</th><th scope="col">{texts.runs}</th><th scope="col">{title(kind)}</th></tr></thead>
            <tbody>{busiest.map((b) => (
              <tr key={b.time}>
                <td>{exact(Date.parse(b.time))}</td><td>{b.runs}</td>
                <td class="names">
                  {b.cronTabs.slice(0, named).map(link)}
                  {b.cronTabs.length > named && ` ${texts.more(b.cronTabs.length - named)}`}
                </td>
              </tr>
            ))}</tbody>
          </table>
        </Scroll>
      )}
      {heat.spread && busiest.length > 0 && heat.spread.runs < busiest[0].runs && <p>{texts.heat.spread(heat.spread.cronTabs.length, heat.spread.runs, busiest[0].runs)}</p>}
      {heat.clocks && (
        <Scroll>
          <table class="plain">
            <thead><tr><th scope="col">{texts.heat.clocks}</th><th scope="col">{title(kind)}</th><th scope="col">{texts.heat.times}</th><th scope="col">{texts.heat.what}</th></tr></thead>
            <tbody>{heat.clocks.map((c) => <tr key={c.time + c.cronTab + c.note}><td>{exact(Date.parse(c.time))}</td><td>{link(c.cronTab)}</td><td>{c.count}</td><td>{c.note}</td></tr>)}</tbody>
          </table>
        </Scroll>
      )}
      {heat.noJobs && <p class="hint">{texts.heat.noJobs} {heat.noJobs}</p>}
      {(heat.mostActive ?? 0) > 1 && <p>{texts.heat.active(heat.mostActive!, exact(Date.parse(heat.mostActiveAt!)))}</p>}
      {heat.overlaps?.map((o) => <p key={o.cronTab}>{link(o.cronTab)}: {texts.heat.overlap(o.duration, o.interval)}</p>)}
    </div>
  );
}
