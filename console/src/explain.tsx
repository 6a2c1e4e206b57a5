// A schedule in words and with its next times, as the program reads it.
import { useEffect, useState } from 'preact/hooks';
import { APIError } from './api';
import { Scroll, Until } from './parts';
import { offsetOf, previews, type CronTabTimes, type Preview } from './runs';
import { texts } from './texts';

const shown = 10;
const pause = 120; // milliseconds after a key

/** Explains a schedule, also one that is being typed. */
export function Explain({ cronTab, live }: { cronTab: CronTabTimes; live?: boolean }) {
  const [preview, set] = useState<Preview>();
  const [message, say] = useState('');
  const asked = JSON.stringify(cronTab);
  useEffect(() => {
    const abort = new AbortController();
    const read = () => previews([cronTab], Date.now(), undefined, shown, abort.signal).then(
      ([answer]) => { set(answer); say(''); },
      (err) => abort.signal.aborted || say(err instanceof APIError ? err.message || texts.lostConsole : String(err)),
    );
    const start = setTimeout(read, pause);
    const again = setInterval(read, 30_000);
    return () => { abort.abort(); clearTimeout(start); clearInterval(again); };
  }, [asked]);
  if (message) return <p class="hint" role="alert">{message}</p>;
  if (!preview) return <p>{texts.loading}</p>;
  return (
    <div aria-live={live ? 'polite' : undefined}>
      {preview.errors.map((e) => <p key={e.field + e.message} class="hint error"><code>{e.field}</code> {e.message}</p>)}
      {preview.words.map((w, i) => <p key={i} class="words">{w}</p>)}
      {!preview.errors.length && <Times preview={preview} />}
    </div>
  );
}

function Times({ preview }: { preview: Preview }) {
  if (!preview.words.length) return <p>{texts.noSchedule}</p>;
  if (!preview.runs.length) return <p class="hint">{texts.neverRuns}</p>;
  const before = (i: number) => (i ? preview.runs[i - 1].time : (preview.after ?? preview.runs[0].time));
  return (
    <Scroll>
      <table class="plain times">
        <thead><tr><th scope="col">{texts.nextTimes}</th><th scope="col">{texts.columns.when}</th><th scope="col">{texts.columns.clocks}</th></tr></thead>
        <tbody>{preview.runs.map((r, i) => (
          <tr key={r.time}>
            <td><code>{timeText(r.time)}</code></td>
            <td><Until at={Date.parse(r.time)} /></td>
            <td>{notes(before(i), r).map((n) => <span key={n} class="badge busy">{n}</span>)}</td>
          </tr>
        ))}</tbody>
      </table>
    </Scroll>
  );
}

const weekdays = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];

/** A time as the clocks in its zone show it. */
function timeText(time: string): string {
  const [, date, clock, zone] = /^(.*)T(\d\d:\d\d:\d\d)(.*)$/.exec(time)!;
  return `${weekdays[new Date(`${date}T00:00:00Z`).getUTCDay()]} ${date} ${clock} ${zone === 'Z' ? 'UTC' : zone}`;
}

/** What the clocks do before a run and at it. */
function notes(before: string, run: Preview['runs'][number]): string[] {
  const change = offsetOf(run.time) - offsetOf(before);
  const found = change ? [texts.clocksChange(change)] : [];
  return run.clocks ? [...found, texts.clocks[run.clocks]] : found;
}
