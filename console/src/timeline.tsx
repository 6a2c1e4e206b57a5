// Runs on a time line: one lane for each CronTab.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { tickText, ticks, type PastRun, type Preview, type Result } from './runs';
import { texts } from './texts';
import { age, exact } from './time';

export interface Lane {
  key: string;
  /** Names the lane to people who do not see it. */
  name: string;
  label: ComponentChildren;
  past: PastRun[];
  /** Undefined while it is not known. */
  coming?: Preview;
}

export type Mark = Result | 'coming';

/** The current time in steps that a time line of this span can show. */
export function useSteps(span: number): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    set(Date.now());
    const timer = setInterval(() => set(Date.now()), Math.max(1000, span / 2000));
    return () => clearInterval(timer);
  }, [span]);
  return now;
}

export function Timeline({ lanes, from, to, now }: { lanes: Lane[]; from: number; to: number; now: number }) {
  const place = (at: number) => `${(100 * (Math.min(Math.max(at, from), to) - from)) / (to - from)}%`;
  const marks = ticks(from, to);
  return (
    <div class="timeline">
      <div class="lane axis" aria-hidden="true">
        <span />
        <svg>{marks.map((at) => <text key={at} x={place(at)} y="12" text-anchor="middle">{tickText(at, to - from)}</text>)}</svg>
      </div>
      {lanes.map((lane) => (
        <div class="lane" key={lane.key}>
          <div class="lane-label">{lane.label}</div>
          <svg role="img" aria-label={`${lane.name}: ${summary(lane, from, now, to)}`}>
            {marks.map((at) => <line key={at} class="grid-line" x1={place(at)} x2={place(at)} y1="0" y2="100%" />)}
            <line class="lane-line" x1="0" x2="100%" y1="50%" y2="50%" />
            {lane.past.filter((r) => (r.finished ?? now) >= from && r.created <= to).map((r) => (
              <g key={r.uid} class={`run ${r.result}`}>
                <line class="late" x1={place(r.scheduled)} x2={place(r.created)} y1="50%" y2="50%" />
                <line x1={place(r.created)} x2={place(r.finished ?? now)} y1="50%" y2="50%" />
                <Shape mark={r.result} x={place(r.scheduled)} title={runTitle(r)} />
              </g>
            ))}
            {comingOf(lane, now, to).map((r) => <g key={r.time} class="run coming"><Shape mark="coming" x={place(Date.parse(r.time))} title={exact(Date.parse(r.time))} /></g>)}
            {lane.coming?.more && Date.parse(lane.coming.runs.at(-1)!.time) < to && <line class="run-more" x1={place(Date.parse(lane.coming.runs.at(-1)!.time))} x2="100%" y1="50%" y2="50%"><title>{texts.timeline.more}</title></line>}
            <line class="now" x1={place(now)} x2={place(now)} y1="0" y2="100%"><title>{texts.timeline.now}</title></line>
          </svg>
        </div>
      ))}
      <Legend />
    </div>
  );
}

/** The shapes tell the results apart without colors as well. */
const shapes: Record<Mark, string> = {
  succeeded: 'M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0-4.5 0Z', coming: 'M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z',
  failed: 'M-5-5L5 5M5-5L-5 5', active: 'M-3.5-5.5L5.5 0L-3.5 5.5Z',
};

function Shape({ mark, x, title }: { mark: Mark; x: string; title?: string }) {
  return <svg class="shape" x={x} y="50%" width="1" height="1"><path d={shapes[mark]}>{title && <title>{title}</title>}</path></svg>;
}

function Legend() {
  return (
    <p class="legend" aria-hidden="true">
      {(['succeeded', 'failed', 'active', 'coming'] as const).map((m) => (
        <span key={m}><svg width="14" height="14"><g class={`run ${m}`}><Shape mark={m} x="50%" /></g></svg>{texts.results[m]}</span>
      ))}
    </p>
  );
}

function comingOf(lane: Lane, now: number, to: number): Preview['runs'] {
  return (lane.coming?.runs ?? []).filter((r) => Date.parse(r.time) > now && Date.parse(r.time) <= to);
}

function summary(lane: Lane, from: number, now: number, to: number): string {
  const past = lane.past.filter((r) => r.scheduled >= from && r.scheduled <= to);
  const counts = (['succeeded', 'failed', 'active'] as const).map((r) => [texts.results[r], past.filter((p) => p.result === r).length] as const).filter(([, n]) => n);
  const coming = lane.coming ? [[texts.results.coming, comingOf(lane, now, to).length] as const] : [];
  return [...counts, ...coming].map(([text, n]) => `${n} ${text}`).join(', ');
}

function runTitle(run: PastRun): string {
  const length = run.finished === undefined ? '' : `, ${age(run.created, run.finished)}`;
  return `${exact(run.scheduled)}: ${texts.results[run.result]}${length}. ${texts.lag(lagText(run))}`;
}

/** How late a run was created. The API has whole seconds. */
export function lagText(run: PastRun): string {
  return run.created - run.scheduled < 1000 ? '< 1s' : age(run.scheduled, run.created);
}
