// What happened to an object, as far as the API tells: it keeps the last change of each condition, and Events for a while.
import type { Event } from './events';
import type { Obj } from './live';

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
  lastTransitionTime: string;
}

/** The changes of conditions that a page has seen, by type, status and time. */
export type Seen = Map<string, Condition>;

export interface Entry {
  key: string;
  at: number;
  condition?: Condition;
  event?: Event;
  /** The object was created, or its deletion began. */
  object?: 'created' | 'deleting';
}

/** Adds the present conditions to those that were seen. A reason may change without a change of the status. */
export function see(seen: Seen, object: Obj): void {
  for (const c of (object.status?.conditions ?? []) as Condition[]) seen.set(`${c.type} ${c.status} ${c.lastTransitionTime}`, c);
}

/** The latest come first. */
export function historyOf(object: Obj, seen: Seen, events: Event[]): Entry[] {
  const { creationTimestamp, deletionTimestamp, deletionGracePeriodSeconds } = object.metadata as { creationTimestamp: string; deletionTimestamp?: string; deletionGracePeriodSeconds?: number };
  const entries: Entry[] = [{ key: 'created', at: Date.parse(creationTimestamp), object: 'created' }];
  if (deletionTimestamp) entries.push({ key: 'deleting', at: Date.parse(deletionTimestamp) - 1000 * (deletionGracePeriodSeconds ?? 0), object: 'deleting' });
  for (const [key, condition] of seen) entries.push({ key, at: Date.parse(condition.lastTransitionTime), condition });
  for (const event of events) entries.push({ key: event.uid, at: event.last, event });
  return entries.filter((e) => !Number.isNaN(e.at)).reverse().sort((a, b) => b.at - a.at);
}
