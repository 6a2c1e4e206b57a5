// What the page of a CronTab has besides the parts of every object: its runs on a time line, its next times, and an
// editor of its schedule.
import { Fragment } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { App } from './app';
import { change } from './change';
import { Explain } from './explain';
import { path, type Kind } from './kinds';
import { ObjectList, type Obj } from './live';
import { PodLogs } from './log';
import { useMay, type May } from './may';
import { Age, Badge, CellText, Empty, Scroll, Section } from './parts';
import { exitCodeOf, previews, runsOf, spanFor, spans, timesOf, type CronTabTimes, type PastRun, type Preview } from './runs';
import { useSource } from './signal';
import type { Tone } from './state';
import { texts } from './texts';
import { age, exact } from './time';
import { lagText, Timeline, useSteps } from './timeline';
import { hasBackfill, isHalted, runAt } from './verbs';

const asked = ['patch'] as const;
const jobs = { group: 'batch', version: 'v1', plural: 'jobs' };

export function CronTabPage({ app, kind, object }: { app: App; kind: Kind; object: Obj }) {
  const { namespace, name } = object.metadata;
  const may = useMay(kind, namespace, name, asked);
  const selector = `&labelSelector=${encodeURIComponent(`crontab.stable.example.com/name=${name}`)}`;
  const list = useMemo(() => new ObjectList(app.socket, path(jobs, namespace), selector), [namespace, name]);
  const pods = useMemo(() => new ObjectList(app.socket, path({ ...jobs, group: '', plural: 'pods' }, namespace), selector), [namespace, name]);
  useEffect(() => () => { list.close(); pods.close(); }, [list, pods]);
  useSource(list, pods);
  const runs = runsOf(list.objects.values(), object.metadata.uid);
  return (
    <>
      <Backfill object={object} />
      <TimelineOf object={object} runs={runs} />
      <Schedule kind={kind} object={object} may={may} />
      <Runs kind={kind} object={object} runs={runs} list={list} pods={[...pods.objects.values()]} may={may} />
    </>
  );
}

function Backfill({ object }: { object: Obj }) {
  const { backfill: asked } = object.spec;
  const status = object.status?.backfill;
  if (!asked && !status) return null;
  const known = asked ? hasBackfill(object) : true;
  const state = !known ? 'waits' : status.finishTime ? 'finished' : asked ? 'runs' : 'cancelled';
  return (
    <Section title={texts.backfill.title}>
      {asked && <p>{texts.backfill.range(exact(Date.parse(asked.from)), exact(Date.parse(asked.to)))}</p>}
      <p role="status">{texts.backfill.states[state]}</p>
      {known && <p><meter min={0} max={status.total || 1} value={status.done ?? 0} aria-label={texts.backfill.title} /> {texts.backfill.progress(status.done ?? 0, status.total ?? 0)}</p>}
    </Section>
  );
}

function TimelineOf({ object, runs }: { object: Obj; runs: PastRun[] }) {
  const [chosen, choose] = useState<number>();
  const [coming, set] = useState<Preview>();
  const span = chosen ?? spanFor(Date.parse(object.status?.nextScheduleTime ?? ''), Date.now());
  const now = useSteps(span);
  const suspended = isHalted(object);
  const times = timesOf(object);
  const turn = Math.floor(now / Math.max(span / 20, 10_000));
  useEffect(() => {
    const abort = new AbortController();
    if (suspended) set(undefined);
    else previews([times], Date.now(), Date.now() + span, 200, abort.signal).then(([answer]) => set(answer), () => set(undefined)); // the schedule below tells why
    return () => abort.abort();
  }, [JSON.stringify(times), suspended, span, turn]);
  const lane = { key: object.metadata.uid, name: object.metadata.name, label: '', past: runs, coming };
  return (
    <Section title={texts.timeline.title}>
      <label class="span">{texts.timeline.span} <select value={span} onChange={(e) => choose(Number(e.currentTarget.value))}>
        {spans.map((s) => <option key={s} value={s}>{texts.timeline.spans[spans.indexOf(s)]}</option>)}
      </select></label>
      {suspended && <p class="hint">{texts.suspended}</p>}
      <Timeline lanes={[lane]} from={now - span / 2} to={now + span / 2} now={now} />
    </Section>
  );
}

function Schedule({ kind, object, may }: { kind: Kind; object: Obj; may: May }) {
  const [editing, edit] = useState(false);
  return (
    <Section title={texts.columns.schedule}>
      {editing && <Editor kind={kind} object={object} close={() => edit(false)} />}
      {!editing && <Explain cronTab={timesOf(object)} />}
      {!editing && <div class="actions"><button type="button" disabled={may.patch !== ''} title={may.patch} onClick={() => edit(true)}>{texts.changeSchedule}</button></div>}
    </Section>
  );
}

/** What the editor of a schedule changes, as texts. */
interface Draft { schedules: string; timeZone: string; daylightSaving: string; excludeDates: string }

const words = (text: string, separator: RegExp) => text.split(separator).map((w) => w.trim()).filter(Boolean);

/** The fields of the spec for a draft; null removes one. */
export function specOf(draft: Draft): Record<string, unknown> {
  const lines = words(draft.schedules, /\n/);
  const dates = words(draft.excludeDates, /[\s,]+/);
  return {
    schedule: lines.length === 1 ? lines[0] : null, schedules: lines.length > 1 ? lines : null,
    timeZone: draft.timeZone.trim() || null, daylightSaving: draft.daylightSaving, excludeDates: dates.length ? dates : null,
  };
}

function Editor({ kind, object, close }: { kind: Kind; object: Obj; close: () => void }) {
  const { spec } = object;
  const [draft, set] = useState<Draft>({
    schedules: (spec.schedule ? [spec.schedule] : (spec.schedules ?? [])).join('\n'), timeZone: spec.timeZone ?? '',
    daylightSaving: spec.daylightSaving ?? 'Once', excludeDates: (spec.excludeDates ?? []).join(', '),
  });
  const [message, say] = useState('');
  const edit = (field: keyof Draft) => (e: { currentTarget: { value: string } }) => set({ ...draft, [field]: e.currentTarget.value });
  const cronTab: CronTabTimes = { metadata: timesOf(object).metadata, spec: { ...timesOf(object).spec, ...specOf(draft) } };
  const save = async () => {
    const why = await change(kind, object, { spec: specOf(draft) });
    say(why);
    if (!why) close();
  };
  return (
    <>
      <div class="form">
        <label>{texts.fields.schedules}
          <textarea value={draft.schedules} rows={2} spellcheck={false} autofocus onInput={edit('schedules')} />
          <span class="help">{texts.fieldHelp.schedules}</span>
        </label>
        <ZoneField value={draft.timeZone} change={edit('timeZone')} />
        <label>{texts.fields.daylightSaving}
          <select value={draft.daylightSaving} onChange={edit('daylightSaving')}><option>Once</option><option>Literal</option></select>
          <span class="help">{texts.fieldHelp.daylightSaving}</span>
        </label>
        <label>{texts.fields.excludeDates}
          <input value={draft.excludeDates} spellcheck={false} autocomplete="off" onInput={edit('excludeDates')} />
          <span class="help">{texts.fieldHelp.excludeDates}</span>
        </label>
      </div>
      <Explain cronTab={cronTab} live />
      {message && <p class="hint" role="alert">{message}</p>}
      <div class="actions">
        <button type="button" onClick={() => void save()}>{texts.save}</button>
        <button type="button" onClick={close}>{texts.cancel}</button>
      </div>
    </>
  );
}

/** A time zone, with those that the browser knows as suggestions. The program decides. */
export function ZoneField({ value, change }: { value: string; change: (e: { currentTarget: { value: string } }) => void }) {
  return (
    <label>{texts.fields.timeZone}
      <input name="timeZone" value={value} list="zones" spellcheck={false} autocomplete="off" onInput={change} />
      <datalist id="zones">{Intl.supportedValuesOf('timeZone').map((z) => <option key={z} value={z} />)}</datalist>
      <span class="help">{texts.fieldHelp.timeZone}</span>
    </label>
  );
}

/** Why a run has failed, or an attempt of one that is active. */
function whyOf(run: PastRun, pods: Obj[]): string {
  const code = run.result === 'succeeded' ? undefined : exitCodeOf(pods, run.uid);
  return [run.reason, code !== undefined && texts.exitCode(code)].filter(Boolean).join(', ');
}

const tones: Record<PastRun['result'], Tone> = { succeeded: 'good', failed: 'bad', active: 'busy' };

function Runs({ kind, object, runs, list, pods, may }: { kind: Kind; object: Obj; runs: PastRun[]; list: ObjectList; pods: Obj[]; may: May }) {
  const [opened, open] = useState('');
  const [message, say] = useState('');
  const { namespace } = object.metadata;
  const again = async (run: PastRun) => say(await change(kind, object, runAt(new Date(run.scheduled), object, run.parameters)) || texts.requested(exact(run.scheduled)));
  const columns = (['scheduled', 'status', 'started', 'lag', 'duration', 'attempts', 'parameters', 'job'] as const).map((c) => texts.columns[c]);
  return (
    <Section title={texts.runs} count={list.phase === 'live' ? runs.length : undefined}>
      {list.phase === 'denied' && <p class="hint"><strong>{texts.denied('Jobs')}</strong> {list.message}</p>}
      {list.phase === 'live' && !runs.length && <Empty title={texts.none('Jobs')} />}
      {message && <p role="status">{message}</p>}
      {runs.length > 0 && (
        <Scroll>
          <table class="plain">
            <thead><tr>{columns.map((c) => <th key={c} scope="col">{c}</th>)}<th scope="col"><span class="hidden">{texts.logs}</span></th></tr></thead>
            <tbody>{runs.map((r) => (
              <Fragment key={r.uid}>
                <tr>
                  <td><time dateTime={new Date(r.scheduled).toISOString()}>{exact(r.scheduled)}</time>{(r.manual || r.backfill) && <> <Badge tone="calm">{r.manual ? texts.onDemand : texts.backfill.badge}</Badge></>}</td>
                  <td><Badge tone={tones[r.result]}>{texts.results[r.result]}</Badge> {whyOf(r, pods)}</td>
                  <td><CellText column="" text={new Date(r.created).toISOString()} /></td>
                  <td>{r.manual || r.backfill ? '' : lagText(r)}</td>
                  <td>{r.finished === undefined ? <Age at={r.created} /> : age(r.created, r.finished)}</td>
                  <td>{r.attempts}</td>
                  <td class="break">{Object.entries(r.parameters).map(([k, v]) => <code key={k}>{`${k}=${v} `}</code>)}</td>
                  <td class="break">{r.job}</td>
                  <td class="buttons">
                    <button type="button" class="small" aria-expanded={opened === r.uid} onClick={() => open(opened === r.uid ? '' : r.uid)}>{texts.logs}</button>{' '}
                    <button type="button" class="small" disabled={may.patch !== ''} title={may.patch || texts.againHint} onClick={() => void again(r)}>{texts.again}</button>
                  </td>
                </tr>
                {opened === r.uid && <tr><td colSpan={columns.length + 1}><PodLogs namespace={namespace!} query={`labelSelector=${encodeURIComponent(`batch.kubernetes.io/job-name=${r.job}`)}`} /></td></tr>}
              </Fragment>
            ))}</tbody>
          </table>
        </Scroll>
      )}
    </Section>
  );
}
