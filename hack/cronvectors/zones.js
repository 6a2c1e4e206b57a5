// The zones, their clock changes according to Node, and the instants to query the libraries at.

const firstYear = 2000;
const lastYear = 2029;
// After 2029, the third run of a schedule for 29 February on a Sunday is in 2088.
const lastChange = 2100;

// A zone that changes by half an hour comes first, because cron-parser is slow there; then two usual
// ones, and zones that skip midnight, never change, change four times a year, have a missing day, have
// no summer time now, and changed a minute past midnight.
export const zoneNames = [
  'Australia/Lord_Howe', 'America/New_York', 'Europe/Berlin', 'America/Sao_Paulo', 'Asia/Kathmandu',
  'UTC', 'Africa/Casablanca', 'Pacific/Apia', 'Asia/Tehran', 'America/St_Johns',
];

// Seconds from a change: the day before, half an hour before, right before, in the hour that may
// repeat, and at its end.
const around = [-90000, -1860, -2, 1740, 3541];
const ordinaryStarts = 50;

const secondsAt = (year) => Date.UTC(year, 0, 1) / 1000;

// offsetIn returns a function from Unix seconds to the offset of the zone in seconds.
function offsetIn(zone) {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: zone, hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric',
    hour: 'numeric', minute: 'numeric', second: 'numeric',
  });
  return (instant) => {
    const p = Object.fromEntries(format.formatToParts(instant * 1000).map(({ type, value }) => [type, Number(value)]));
    return Date.UTC(p.year, p.month - 1, p.day, p.hour, p.minute, p.second) / 1000 - instant;
  };
}

// changesOf returns [instant, offset from then on] for every change between two instants. Two
// changes within a day would be missed; no zone here has them.
function changesOf(offset, from, to) {
  const changes = [];
  const day = 86400;
  let offsetBefore = offset(from);
  for (let before = from; before < to; before += day) {
    const offsetAfter = offset(before + day);
    if (offsetAfter === offsetBefore) continue;
    let low = before;
    let high = before + day;
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (offset(middle) === offsetBefore) low = middle;
      else high = middle;
    }
    changes.push([high, offsetAfter]);
    offsetBefore = offsetAfter;
  }
  return changes;
}

// randomFrom returns a function that generates numbers from 0 to 1, seeded by a text (xorshift, FNV-1a).
function randomFrom(text) {
  let state = 0x811c9dc5;
  for (const c of text) state = Math.imul(state ^ c.charCodeAt(0), 0x01000193);
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

// zoneOf returns a zone as written to the file: its initial offset, its changes, and the instants to
// start from: around every clock change, or around arbitrary days if there is none, and ordinary times.
export function zoneOf(name) {
  const offset = offsetIn(name);
  const from = secondsAt(firstYear);
  const to = secondsAt(lastYear + 1);
  const changes = changesOf(offset, from, secondsAt(lastChange));
  let points = changes.map(([instant]) => instant).filter((instant) => instant < to);
  if (points.length === 0) {
    for (let year = firstYear; year <= lastYear; year++) {
      points.push(Date.UTC(year, 1, 28) / 1000, Date.UTC(year, 6, 1) / 1000);
    }
  }
  const random = randomFrom(name);
  const ordinary = Array.from({ length: ordinaryStarts }, () => Math.floor(from + random() * (to - from)));
  // Not in chronological order: adjacent similar starts compress well.
  const starts = [...around.flatMap((seconds) => points.map((point) => point + seconds)), ...ordinary];
  return { name, offset: offset(from), changes, starts };
}
