// What can be done with an object besides editing it.
import type { Obj } from './live';
import { texts } from './texts';

export interface Verb {
  name: string;
  label: string;
  /** A JSON merge patch. */
  patch: object;
  /** What a user should know before, for verbs that interrupt something. */
  warning?: string;
  /** What asks for more than the patch has. */
  form?: 'run' | 'backfill';
}

/** The verbs for an object in its state. The time is that of a request. */
export function verbsOf(plural: string, object: Obj, now: Date): Verb[] {
  if (object.metadata.deletionTimestamp) return [];
  if (plural === 'virtualmachines') return machineVerbs(object, inSeconds(now));
  if (plural === 'crontabs') return cronTabVerbs(object, now);
  if (plural === 'clusters') return clusterVerbs(object, now);
  return [];
}

function machineVerbs(object: Obj, time: string): Verb[] {
  const { name } = object.metadata;
  const action = object.spec?.action ?? 'active';
  const act = (to: string, extra?: Partial<Verb>): Verb => ({ name: to, label: texts.verbs[to as 'active'], patch: { spec: { action: to } }, ...extra });
  const stop = act('stopped', { warning: texts.stopWarning(name) });
  if (action === 'stopped') return [act('active')];
  const scheduled = object.spec?.powerSchedule !== undefined || object.spec?.idle !== undefined;
  if (action === 'asleep' || (scheduled && object.status?.printableStatus === 'Asleep')) {
    // With a schedule, the machine stays awake until the next time to sleep, with spec.idle until it is idle again.
    return [act('active', { label: texts.verbs.wake, ...(scheduled && { patch: { spec: { action: 'active', wakeRequestedAt: time } } }) }), stop];
  }
  if (action === 'paused') return [act('active', { label: texts.verbs.resume }), stop];
  const restart: Verb = { name: 'restart', label: texts.verbs.restart, patch: { spec: { restartRequestedAt: time } }, warning: texts.restartWarning(name) };
  // The guest has powered off and is not restarted: a restart is its start.
  if (object.status?.conditions?.some((c: any) => c.type === 'Ready' && c.reason === 'GuestStopped')) {
    return [{ ...restart, label: texts.verbs.active, warning: undefined }, stop];
  }
  return [restart, act('paused'), ...(sleeps(object) ? [act('asleep')] : []), stop];
}

/** The drivers qemu and fake put machines to sleep, and the driver pod those with a root disk. */
function sleeps(object: Obj): boolean {
  const driver = object.status?.host?.driver;
  return ['qemu', 'fake'].includes(driver) || (driver === 'pod' && object.spec?.resource?.rootDisk !== undefined);
}

/** The engines local and hosted can stop a Cluster and rotate its credentials. */
function clusterVerbs(object: Obj, now: Date): Verb[] {
  const { name } = object.metadata;
  if (!['local', 'hosted'].includes(object.status?.engine)) return [];
  if (object.spec?.running === false) return [{ name: 'start', label: texts.verbs.active, patch: { spec: { running: true } } }];
  return [
    { name: 'stop', label: texts.verbs.stopped, patch: { spec: { running: false } }, warning: texts.stopClusterWarning(name) },
    { name: 'rotate', label: texts.verbs.rotate, patch: { spec: { rotateRequestedAt: inSeconds(now) } }, warning: texts.rotateWarning(name) },
  ];
}

/** The patch that requests a run of a CronTab for a time, with these values of its parameters instead of the defaults. */
export function runAt(time: Date, object: Obj, values: Record<string, string> = {}): object {
  const before = Object.fromEntries(Object.keys(object.spec?.runParameters ?? {}).map((name) => [name, null]));
  return { spec: { runRequestedAt: inSeconds(time), runParameters: Object.keys(values).length ? { ...before, ...values } : null } };
}

/** The time of a request now, after that of the request before. */
export function requestAt(now: Date, before?: string): string {
  return inSeconds(new Date(Math.max(now.getTime(), (Date.parse(before ?? '') || 0) + 1000)));
}

/** Whether a backfill of a CronTab was requested, and has not finished. */
export function isBackfilling(object: Obj): boolean {
  return object.spec?.backfill != null && !(hasBackfill(object) && object.status.backfill.finishTime);
}

/** Whether the status is that of the backfill in the spec. */
export function hasBackfill(object: Obj): boolean {
  const second = (time?: string) => Math.floor(Date.parse(time ?? '') / 1000);
  return second(object.spec?.backfill?.requestedAt) === second(object.status?.backfill?.requestedAt);
}

function inSeconds(time: Date): string {
  return time.toISOString().replace(/\.\d+Z$/, 'Z');
}

/** Whether too many failures in a row have stopped the schedule of a CronTab. */
function isStopped(object: Obj): boolean {
  const limit = object.spec?.suspendAfterFailures;
  return limit !== undefined && (object.status?.failureStreak?.runs?.length ?? 0) >= limit;
}

/** Whether no scheduled run of a CronTab starts: it is suspended, or has stopped after failures. */
export function isHalted(object: Obj): boolean {
  return object.spec?.suspend === true || isStopped(object);
}

const form = (name: 'run' | 'backfill', label: string): Verb => ({ name, label, patch: {}, form: name });

const canBackfill = (spec: Obj['spec']) => (spec?.schedule || spec?.schedules?.length) && spec.concurrencyPolicy !== 'Replace';

function cronTabVerbs(object: Obj, now: Date): Verb[] {
  const halted = isHalted(object);
  const resumed = isStopped(object) ? { resumeRequestedAt: inSeconds(now) } : {};
  return [
    ...(object.spec?.jobTemplate ? [object.spec.parameters?.length ? form('run', texts.verbs.runWith) : { name: 'run', label: texts.verbs.run, patch: runAt(now, object) }] : []),
    { name: 'suspend', label: halted ? texts.verbs.resume : texts.verbs.suspend, patch: { spec: { suspend: !halted, ...resumed } } },
    ...(isBackfilling(object) ? [{ name: 'cancel', label: texts.verbs.cancelBackfill, patch: { spec: { backfill: null } }, warning: texts.cancelWarning }] : []),
    ...(!isBackfilling(object) && canBackfill(object.spec) ? [form('backfill', texts.verbs.backfill)] : []),
  ];
}
