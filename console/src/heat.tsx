// How many runs of all CronTabs start in each hour of the coming days, as the program computes and draws it.
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
  svg: string;
  more: boolean;
}

const named = 5; // CronTabs of a minute

export function RunsPerHour({ kind }: { kind: Kind }) {
  const [heat, set] = useState<Heat>();
  const [message, say] = useState('');
  const namespace = router.filter;
  useEffect(() => {
    const abort = new AbortController();
    const query = new URLSearchParams({ namespace, zone });
    getOwn<Heat>(`/timeline?${query}`, abort.signal).then(
      (found) => { set(found); say(''); },
      (err) => abort.signal.aborted || say(err instanceof APIError ? err.message || texts.lostConsole : String(err)),
    );
    return () => abort.abort();
  }, [namespace]);
  if (message) return <Empty title={texts.failed(title(kind))}><p>{message}</p></Empty>;
  if (!heat) return <Empty title={texts.loading} />;
  const busiest = heat.busiest ?? [];
  return (
    <div class="card">
      {heat.more && <p class="hint">{texts.heat.more}</p>}
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
                  {b.cronTabs.slice(0, named).map((c) => <a key={c} href={href(kind, ...(c.split('/') as [string, string]))}>{c}</a>)}
                  {b.cronTabs.length > named && ` ${texts.more(b.cronTabs.length - named)}`}
                </td>
              </tr>
            ))}</tbody>
          </table>
        </Scroll>
      )}
      {heat.spread && busiest.length > 0 && heat.spread.runs < busiest[0].runs && <p>{texts.heat.spread(heat.spread.cronTabs.length, heat.spread.runs, busiest[0].runs)}</p>}
    </div>
  );
}
