// The two libraries behind one interface: a function of a schedule and a zone. It throws if the library
// rejects the schedule, and returns a function (start, n): up to n runs after start, all in Unix
// seconds.

import { Cron } from 'croner';
import { CronExpressionParser } from 'cron-parser';

// Both libraries call this for nearly everything, and repeatedly for the same instants.
const { formatToParts } = Intl.DateTimeFormat.prototype;
const enough = 10_000;
const formatted = new Map(); // formatter -> instant -> parts
Intl.DateTimeFormat.prototype.formatToParts = function (date) {
  let known = formatted.get(this);
  if (!known || known.size > enough) formatted.set(this, known = new Map());
  const instant = Number(date);
  if (!known.has(instant)) known.set(instant, formatToParts.call(this, date));
  return known.get(instant);
};

export function croner(schedule, zone) {
  const cron = new Cron(schedule, { timezone: zone });
  return (start, n) => {
    const runs = [];
    for (let t = new Date(start * 1000); runs.length < n;) {
      t = cron.nextRun(t);
      if (!t) break;
      runs.push(t.getTime() / 1000);
    }
    return runs;
  };
}

export function cronParser(schedule, zone) {
  const cron = CronExpressionParser.parse(schedule, { tz: zone });
  return (start, n) => {
    cron.reset(new Date(start * 1000));
    const runs = [];
    while (runs.length < n) {
      try {
        runs.push(cron.next().getTime() / 1000);
      } catch {
        break; // its word for "never", and for "too far away"
      }
    }
    return runs;
  };
}
