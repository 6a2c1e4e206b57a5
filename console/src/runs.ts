// The runs of CronTabs: those that have Jobs, and where they are on a time line. The coming ones come from the program,
// which has the only parser of schedules.
import { ask } from './api';
import type { Obj } from './live';

export type Result = 'succeeded' | 'failed' | 'active';

/** A run that has begun. Times are in milliseconds. */
export interface PastRun {
  uid: string;
  job: string;
  /** The time of the schedule, or of the request. */
  scheduled: number;
  manual: boolean;
  backfill: boolean;
  created: number;
  finished?: number;
  result: Result;
  /** Why it failed. */
  reason: string;
  /** How many Pods were started. */
  attempts: number;
  parameters: Record<string, string>;
}

const annotations = {
  scheduled: 'batch.kubernetes.io/cronjob-scheduled-timestamp', requested: 'crontab.stable.example.com/run-requested-at',
  backfill: 'crontab.stable.example.com/backfill-requested-at', parameters: 'crontab.stable.example.com/parameters',
};

/** The runs of the Jobs of an owner, the latest first. */
export function runsOf(jobs: Iterable<Obj>, owner: string): PastRun[] {
  const runs: PastRun[] = [];
  for (const job of jobs) if (job.metadata.ownerReferences?.some((o) => o.uid === owner)) runs.push(runOf(job));
  return runs.sort((a, b) => b.created - a.created || b.scheduled - a.scheduled);
}

function runOf(job: Obj): PastRun {
  const notes = job.metadata.annotations ?? {};
  const condition = (type: string) => job.status?.conditions?.find((c: any) => c.type === type && c.status === 'True');
  const failed = condition('Failed');
  const created = Date.parse(job.metadata.creationTimestamp);
  const scheduled = Date.parse(notes[annotations.scheduled] ?? '');
  const end = Date.parse(failed ? failed.lastTransitionTime : (job.status?.completionTime ?? condition('Complete')?.lastTransitionTime ?? ''));
  return {
    uid: job.metadata.uid, job: job.metadata.name, scheduled: Number.isNaN(scheduled) ? created : scheduled, manual: annotations.requested in notes, created,
    backfill: annotations.backfill in notes, reason: failed?.reason ?? '', parameters: parametersIn(notes[annotations.parameters]),
    attempts: (job.status?.active ?? 0) + (job.status?.succeeded ?? 0) + (job.status?.failed ?? 0),
    finished: Number.isNaN(end) ? undefined : end,
    result: failed ? 'failed' : condition('Complete') ? 'succeeded' : 'active',
  };
}

/** The parameters in an annotation; none if somebody has changed it. */
function parametersIn(text = '{}'): Record<string, string> {
  try {
    return { ...JSON.parse(text) };
  } catch {
    return {};
  }
}

/** The exit code of the container that failed last of the Pods of a Job. */
export function exitCodeOf(pods: Iterable<Obj>, job: string): number | undefined {
  let last: { exitCode: number; finishedAt: string } | undefined;
  for (const { metadata, status } of pods) {
    if (!metadata.ownerReferences?.some((o) => o.uid === job)) continue;
    for (const container of [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])]) {
      for (const ended of [container.lastState?.terminated, container.state?.terminated]) if (ended?.exitCode && !(last && ended.finishedAt < last.finishedAt)) last = ended;
    }
  }
  return last?.exitCode;
}

/** How a run relates to a change of the clocks. */
export type Clocks = 'Skipped' | 'First' | 'Second';

/** What the program says about a schedule. */
export interface Preview {
  words: string[];
  /** In the zone of the CronTab, as the times of the runs are. */
  after?: string;
  runs: { time: string; clocks?: Clocks }[];
  more: boolean;
  errors: { field: string; message: string }[];
  backfill?: BackfillPreview;
}

/** What a backfill would run. */
export interface BackfillPreview {
  from: string;
  to: string;
  times: number;
  /** Why it is refused. */
  message?: string;
}

/** The fields of a CronTab that have to do with its times. */
export interface CronTabTimes {
  metadata: { name: string; namespace?: string; creationTimestamp?: string };
  spec: Record<string, unknown>;
}

const timeFields = ['schedule', 'schedules', 'timeZone', 'daylightSaving', 'notBefore', 'notAfter', 'excludeDates'];

/** A CronTab without what has nothing to do with its times. */
export function timesOf(object: Obj): CronTabTimes {
  const { name, namespace, creationTimestamp } = object.metadata;
  return { metadata: { name, namespace, creationTimestamp }, spec: Object.fromEntries(timeFields.filter((f) => object.spec?.[f] != null).map((f) => [f, object.spec[f]])) };
}

/** Asks for the runs of CronTabs in (after, upTo]. */
export async function previews(cronTabs: CronTabTimes[], after: number, upTo: number | undefined, limit: number, signal?: AbortSignal): Promise<Preview[]> {
  const asked = { cronTabs, after: new Date(after).toISOString(), upTo: upTo && new Date(upTo).toISOString(), limit };
  return (await ask<{ cronTabs: Preview[] }>('/schedules', asked, signal)).cronTabs;
}

/** Asks for what a backfill of a CronTab would run; the times are in the zone of the CronTab. */
export async function previewBackfill(cronTab: CronTabTimes, from: string, to: string, signal: AbortSignal): Promise<Preview> {
  const asked = { cronTabs: [cronTab], after: new Date().toISOString(), limit: 1, backfill: { from, to } };
  return (await ask<{ cronTabs: Preview[] }>('/schedules', asked, signal)).cronTabs[0];
}

/** The offset of a time in the form of RFC 3339 from UTC, in minutes. */
export function offsetOf(time: string): number {
  const found = /([+-])(\d\d):(\d\d)$/.exec(time);
  return found ? (found[1] === '-' ? -1 : 1) * (Number(found[2]) * 60 + Number(found[3])) : 0;
}

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

/** The lengths of time lines, of which the coming part is a half. */
export const spans = [hour, 6 * hour, day, 7 * day, 30 * day, 365 * day];

/** The shortest span that has the next run in its middle. */
export function spanFor(next: number, now: number): number {
  return Number.isNaN(next) ? day : (spans.find((s) => next - now <= s / 4) ?? spans.at(-1)!);
}

const steps = [minute, 5 * minute, 15 * minute, hour, 3 * hour, 6 * hour, day, 7 * day, 30 * day, 90 * day];

/** Round times of this zone between two times, at most five or so. */
export function ticks(from: number, to: number): number[] {
  const step = steps.find((s) => (to - from) / s <= 6) ?? steps.at(-1)!;
  const zone = new Date(from).getTimezoneOffset() * minute;
  const found: number[] = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) found.push(at);
  return found;
}

/** The text of a tick: a time of the day, or a date. */
export function tickText(at: number, span: number): string {
  const date = new Date(at);
  if (span > 2 * day || (date.getHours() === 0 && date.getMinutes() === 0)) return date.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' });
  return date.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });
}
