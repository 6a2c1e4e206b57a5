// Times for people.

/** The time between two times, in the form of kubectl: 45s, 3m, 3h10m, 5d. */
export function age(from: number, to: number): string {
  const s = Math.max(0, Math.floor((to - from) / 1000));
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 10) return s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  if (m < 180) return `${m}m`;
  const h = Math.floor(m / 60);
  if (h < 8) return m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  if (h < 48) return `${h}h`;
  const d = Math.floor(h / 24);
  if (d < 8) return h % 24 ? `${d}d${h % 24}h` : `${d}d`;
  if (d < 730) return `${d}d`;
  return `${Math.floor(d / 365)}y`;
}

/** The time in a text of the form of RFC 3339; undefined for other texts. */
export function timeIn(text: string): number | undefined {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/.test(text)) return undefined;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : at;
}

/** A coming or past time: in 45s, 3m ago. */
export function relative(at: number, now: number): string {
  return at > now ? until(at, now) : `${age(at, now)} ago`;
}

/** A coming time: in 45s. */
export function until(at: number, now: number): string {
  return at <= now ? 'now' : `in ${age(now, at)}`;
}

// To make a formatter takes longer than to render a row of a list.
const formatter = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

/** The time zone of the browser. */
export const zone = formatter.resolvedOptions().timeZone;

/** A time with its zone, as a tooltip. */
export function exact(at: number): string {
  return `${formatter.format(at)} ${zone}`;
}

/** The time of the day. */
export function clock(at: number): string {
  return new Date(at).toLocaleTimeString('en-GB');
}
