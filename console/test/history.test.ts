import assert from 'node:assert/strict';
import { test } from 'node:test';
import { historyOf, see, type Seen } from '../src/history';
import { scheduleYAML, newSchedule, wordsOfCommand } from '../src/templates';

const condition = (type: string, status: string, reason: string, lastTransitionTime: string) => ({ type, status, reason, message: '', lastTransitionTime });
const machine = (...conditions: unknown[]) => ({ metadata: { name: 'x', creationTimestamp: '2026-01-01T00:00:00Z' }, status: { conditions } }) as any;

test('a history has what the object and its events tell, and what was seen before', () => {
  const seen: Seen = new Map();
  see(seen, machine(condition('Ready', 'False', 'GuestBooting', '2026-01-01T00:00:01Z')));
  see(seen, machine(condition('Ready', 'False', 'Starting', '2026-01-01T00:00:01Z')));
  const now = machine(condition('Ready', 'True', 'GuestReady', '2026-01-01T00:00:09Z'));
  see(seen, now);
  const event = { uid: 'e', reason: 'Started', last: Date.parse('2026-01-01T00:00:05Z'), count: 1 } as any;
  const told = historyOf(now, seen, [event]).map((e) => e.object ?? e.event?.reason ?? `${e.condition!.status} ${e.condition!.reason}`);
  assert.deepEqual(told, ['True GuestReady', 'Started', 'False Starting', 'created']);
  const deleted = { ...now, metadata: { ...now.metadata, deletionTimestamp: '2026-01-01T00:01:00Z', deletionGracePeriodSeconds: 30 } };
  assert.equal(historyOf(deleted, new Map(), [])[0].at, Date.parse('2026-01-01T00:00:30Z'));
});

const cronTabs = { group: 'stable.example.com', version: 'v1', plural: 'crontabs', kind: 'CronTab', namespaced: true };

test('the form of a schedule makes YAML, whatever is typed', () => {
  assert.equal(scheduleYAML(cronTabs, 'a', { ...newSchedule, name: 'x', command: `sh -c 'echo "a b"'` }),
    'apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata:\n  name: x\n  namespace: a\nspec:\n  schedule: "0 3 * * *"\n  concurrencyPolicy: Forbid\n' +
    '  jobTemplate:\n    containers:\n    - name: main\n      image: busybox\n      command:\n      - sh\n      - "-c"\n      - "echo \\"a b\\""\n');
  const several = scheduleYAML(cronTabs, 'a', { ...newSchedule, schedules: '@daily\n\n 5 * * * *', timeZone: 'Europe/Berlin', command: '' });
  assert.match(several, /spec:\n  schedules:\n  - "@daily"\n  - "5 \* \* \* \*"\n  timeZone: Europe\/Berlin\n/);
  assert.match(several, /image: busybox\n$/);
  assert.deepEqual(wordsOfCommand(`a "b c"d '' it's`), ['a', 'b cd', '', `it's`]);
});
