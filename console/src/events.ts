// Events of the API in the forms that it has: with a count, or with a series.
import type { Obj } from './live';

export interface Event {
  uid: string;
  type: string;
  reason: string;
  message: string;
  count: number;
  last: number;
  kind: string;
  apiVersion: string;
  namespace: string;
  name: string;
}

export function eventOf(object: Obj): Event {
  const about = object.involvedObject ?? {};
  const last = object.series?.lastObservedTime ?? object.lastTimestamp ?? object.eventTime ?? object.metadata.creationTimestamp;
  return {
    uid: object.metadata.uid,
    type: object.type ?? '',
    reason: object.reason ?? '',
    message: object.message ?? '',
    count: object.series?.count ?? object.count ?? 1,
    last: Date.parse(last),
    kind: about.kind ?? '',
    apiVersion: about.apiVersion ?? '',
    namespace: about.namespace ?? '',
    name: about.name ?? '',
  };
}

/** The latest come first. */
export function sortedEvents(objects: Iterable<Obj>): Event[] {
  return [...objects].map(eventOf).sort((a, b) => b.last - a.last);
}
