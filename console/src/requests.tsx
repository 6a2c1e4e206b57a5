// What a user asks of a CronTab with more than a button: a run with values of its parameters, and a backfill.
import { useEffect, useState } from 'preact/hooks';
import { APIError } from './api';
import { change } from './change';
import type { Kind } from './kinds';
import type { Obj } from './live';
import { Cancel, Dialog } from './parts';
import { previewBackfill, timesOf, type Preview } from './runs';
import { texts } from './texts';
import { requestAt, runAt } from './verbs';

interface Props { kind: Kind; object: Obj; close: () => void }

interface Parameter { name: string; default?: string; description?: string; enum?: string[]; required?: boolean }

export function RunForm({ kind, object, close }: Props) {
  const [typed, set] = useState<Record<string, string>>({});
  const [message, say] = useState('');
  const send = async (event: Event) => {
    event.preventDefault();
    const why = await change(kind, object, runAt(new Date(), object, typed));
    say(why);
    if (!why) close();
  };
  const fieldOf = (p: Parameter) => {
    const value = typed[p.name] ?? p.default ?? '';
    const onInput = (e: { currentTarget: { value: string } }) => set({ ...typed, [p.name]: e.currentTarget.value });
    if (!p.enum) return <input name={p.name} value={value} required={p.required} maxLength={1024} spellcheck={false} autocomplete="off" onInput={onInput} />;
    const options = p.enum.includes(p.default ?? '') ? p.enum : ['', ...p.enum];
    return <select name={p.name} value={value} required={p.required} onChange={onInput}>{options.map((o) => <option key={o} value={o}>{o}</option>)}</select>;
  };
  return (
    <Dialog title={texts.verbs.run} close={close}>
      <form onSubmit={(e) => void send(e)}>
        <div class="form">
          {(object.spec.parameters as Parameter[]).map((p) => (
            <label key={p.name}>{p.name}{p.required && ' *'}
              {fieldOf(p)}
              <span class="help">{[p.description, p.default && texts.usual(p.default)].filter(Boolean).join('. ')}</span>
            </label>
          ))}
        </div>
        {message && <p class="hint" role="alert">{message}</p>}
        <div class="actions"><button type="submit">{texts.verbs.run}</button><Cancel /></div>
      </form>
    </Dialog>
  );
}

const choices = { reprocess: ['None', 'Failed', 'All'], order: ['EarliestFirst', 'LatestFirst'] } as const;

export function BackfillForm({ kind, object, close }: Props) {
  const [draft, set] = useState({ from: '', to: '', reprocess: 'None', maxConcurrency: '1', order: 'EarliestFirst' });
  const [preview, tell] = useState<Preview>();
  const [message, say] = useState('');
  const times = timesOf(object);
  useEffect(() => {
    tell(undefined);
    say('');
    if (!draft.from || !draft.to) return;
    const abort = new AbortController();
    previewBackfill(times, draft.from, draft.to, abort.signal).then(tell, (err) => abort.signal.aborted || say(err instanceof APIError ? err.message || texts.lostConsole : String(err)));
    return () => abort.abort();
  }, [draft.from, draft.to, JSON.stringify(times)]);
  const found = preview?.backfill;
  const send = async (event: Event) => {
    event.preventDefault();
    const requestedAt = requestAt(new Date(), object.status?.backfill?.requestedAt);
    const why = await change(kind, object, { spec: { backfill: { ...draft, maxConcurrency: Number(draft.maxConcurrency), from: found!.from, to: found!.to, requestedAt } } });
    say(why);
    if (!why) close();
  };
  const edit = (field: keyof typeof draft) => (e: { currentTarget: { value: string } }) => set({ ...draft, [field]: e.currentTarget.value });
  const { fields, fieldHelp } = texts.backfill;
  const time = (field: 'from' | 'to') => (
    <label>{fields[field]} *
      <input name={field} type="datetime-local" value={draft[field]} required onInput={edit(field)} />
      <span class="help">{fieldHelp[field](String(object.spec.timeZone || 'UTC'))}</span>
    </label>
  );
  const choice = (field: 'reprocess' | 'order') => (
    <label>{fields[field]}
      <select name={field} value={draft[field]} onChange={edit(field)}>{choices[field].map((c) => <option key={c} value={c}>{texts.backfill.choices[c]}</option>)}</select>
      <span class="help">{fieldHelp[field]}</span>
    </label>
  );
  const wrong = message || (preview?.errors ?? []).map((e) => `${e.field}: ${e.message}`).join('. ') || found?.message;
  return (
    <Dialog title={texts.backfill.title} close={close}>
      <form onSubmit={(e) => void send(e)}>
        <div class="form">
          {time('from')}
          {time('to')}
          {choice('reprocess')}
          {choice('order')}
          <label>{fields.maxConcurrency}
            <input name="maxConcurrency" type="number" min="1" step="1" required value={draft.maxConcurrency} onInput={edit('maxConcurrency')} />
            <span class="help">{fieldHelp.maxConcurrency}</span>
          </label>
        </div>
        {wrong ? <p class="hint" role="alert">{wrong}</p> : <p role="status">{found ? texts.backfill.times(found.times) : texts.backfill.choose}</p>}
        <div class="actions"><button type="submit" disabled={!found?.times || !!found.message}>{texts.backfill.send}</button><Cancel /></div>
      </form>
    </Dialog>
  );
}
