import assert from 'node:assert/strict';
import { test } from 'node:test';
import { groups, messageOf, nextRuns } from '../src/attention';
import { backoff } from '../src/backoff';
import { diff } from '../src/diff';
import { eventOf } from '../src/events';
import { counted, href, path, sorted, type Kind } from '../src/kinds';
import { select } from '../src/list';
import { relatedOf } from '../src/related';
import { containersOf, newest, readable } from '../src/log';
import { parse } from '../src/route';
import { exitCodeOf, offsetOf, runsOf, spanFor, ticks } from '../src/runs';
import { bytesPerSecond, graphs } from '../src/samples';
import { stateOf, toneOfCell } from '../src/state';
import { columnsOf, matches, rowsOf, versionOf, wordsOf, type Table } from '../src/table';
import { age, relative, timeIn } from '../src/time';
import { machineYAML, newMachine, templateOf } from '../src/templates';
import { requestAt, runAt, verbsOf } from '../src/verbs';
import { withoutManagedFields } from '../src/yaml';

const machines: Kind = { group: 'cloudnative.tw', version: 'v1alpha1', plural: 'virtualmachines', kind: 'VirtualMachine', namespaced: true };
const clusters: Kind = { group: 'clusterprovisioner.rke.io', version: 'v1alpha1', plural: 'clusters', kind: 'Cluster', namespaced: false };

test('the message of a reason is that of its condition', () => {
  const of = (reason: string, ...conditions: string[][]) => messageOf(
    { ...object('a'), status: { message: 'of the phase', conditions: conditions.map(([type, reason, message]) => ({ type, reason, message })) } } as any, reason);
  const ready = ['Ready', 'NotProbed', 'The API was not probed yet'];
  assert.equal(of('EngineNotAvailable', ready, ['Provisioned', 'EngineNotAvailable', 'There is no rke']), 'There is no rke');
  assert.equal(of('NotProbed', ['Provisioned', 'NotProbed', 'another one'], ready), 'The API was not probed yet');
  assert.equal(of('Stopped', ready), 'of the phase');
  assert.equal(messageOf({ ...object('a'), status: {} } as any, 'Stopped'), '');
});

const column = (name: string, type = 'string', priority = 0) => ({ name, type, description: '', priority });
const object = (name: string, extra = {}) => ({ metadata: { name, namespace: 'a', uid: name, creationTimestamp: '2026-01-01T00:00:00Z', ...extra } });

const table: Table = {
  kind: 'Table',
  metadata: { resourceVersion: '7' },
  columnDefinitions: [column('Name'), column('CPU(%)', 'integer'), column('Age', 'date'), column('Ready', 'string', 1), column('Reason', 'string', 1)],
  rows: [
    { cells: ['vm-10', 5, '1d', 'True', 'Running'], object: object('vm-10') },
    { cells: ['vm-9', 40, '1d', 'False', 'CreateFailed'], object: object('vm-9') },
    { cells: ['vm-2', null, '1d', 'False', 'Stopped'], object: object('vm-2', { deletionTimestamp: '2026-01-02T00:00:00Z' }) },
    { cells: ['new', null, '1d', null, null], object: object('new', { ownerReferences: [{ uid: 'o' }] }) },
  ],
};

function listOf(t: Table) {
  const { columns, places } = columnsOf(t);
  const rows = new Map(rowsOf(t, places).map((r) => [r.uid, r]));
  return { columns, rows, cell: (row: any, name: string) => row.cells[columns.findIndex((c) => c.name === name)] ?? '' };
}

test('a table loses its ages, which would go stale, and keeps the rest as text', () => {
  const { columns, places } = columnsOf(table);
  assert.deepEqual(columns.map((c) => [c.name, c.wide]), [['CPU(%)', false], ['Ready', true], ['Reason', true]]);
  const rows = rowsOf(table, places);
  assert.deepEqual(rows[1].cells, ['40', 'False', 'CreateFailed']);
  assert.deepEqual([rows[3].cells, rows[3].owners, rows[2].deleting, rows[0].deleting], [['', '', ''], ['o'], true, false]);
});

test('a watch goes on from the version of a bookmark', () => {
  assert.equal(versionOf(table), '7');
  const bookmark = { kind: 'Table', metadata: { resourceVersion: '' }, columnDefinitions: null, rows: [{ cells: [], object: { metadata: { resourceVersion: '9' } } }] };
  assert.equal(versionOf(bookmark as unknown as Table), '9');
});

test('a search finds all of its words in names, namespaces and cells', () => {
  const row = rowsOf(table, columnsOf(table).places)[1];
  const found = (search: string) => matches(row, wordsOf(search));
  assert.deepEqual(['', 'VM-9', 'vm failed', 'namespace:a', 'namespace:b', 'vm-9 running'].map(found), [true, true, true, true, false, false]);
});

test('rows are in natural order, numbers by value, empty ones first', () => {
  const names = (search: string, sort: string) => select(listOf(table), search, sort).map((r) => r.name);
  assert.deepEqual(names('', ''), ['new', 'vm-2', 'vm-9', 'vm-10']);
  assert.deepEqual(names('vm', '-CPU(%)'), ['vm-9', 'vm-10', 'vm-2']);
  assert.deepEqual(names('', 'Reason'), ['new', 'vm-9', 'vm-10', 'vm-2']);
});

test('what is wrong is told from what is in progress or was asked for', () => {
  assert.deepEqual(
    groups([{ kind: machines, list: listOf(table) as any }]).map((g) => [g.state, g.reason, g.rows.map((r) => r.name)]),
    [['none', '', ['new']], ['wrong', 'CreateFailed', ['vm-9']], ['progress', 'Stopped', ['vm-2']]],
  );
  assert.deepEqual([stateOf('True', 'Stopped'), stateOf('Unknown', 'BackendUnavailable'), stateOf('False', 'GuestBooting'), stateOf('True', 'Suspended'), stateOf('True', 'Running')], ['requested', 'wrong', 'progress', 'requested', 'ready']);
  assert.deepEqual([toneOfCell('Status', 'Failed'), toneOfCell('Image', 'Failed'), toneOfCell('Status', 'New')], ['bad', 'plain', 'plain']);
});

test('the next run comes first, and CronTabs without one are left out', () => {
  const cronTabs: Table = {
    ...table,
    columnDefinitions: [column('Schedule'), column('Next')],
    rows: [
      { cells: ['@daily', '2026-11-25T00:00:00Z'], object: object('later') },
      { cells: ['@hourly', '2026-11-24T06:00:00+02:00'], object: object('soon') },
      { cells: ['', null], object: object('never') },
    ],
  };
  assert.deepEqual(nextRuns(listOf(cronTabs) as any).map((r) => [r.row.name, r.schedule]), [['soon', '@hourly'], ['later', '@daily']]);
});

test('addresses of pages', () => {
  assert.deepEqual(parse('/', '?namespace=a'), { plural: '', namespace: 'a', name: '', search: '', sort: '', view: '', create: false, from: '' });
  assert.deepEqual(parse('/virtualmachines', '?search=x&sort=-Age'), { plural: 'virtualmachines', namespace: '', name: '', search: 'x', sort: '-Age', view: '', create: false, from: '' });
  assert.deepEqual(parse('/virtualmachines/a/vm', ''), { plural: 'virtualmachines', namespace: 'a', name: 'vm', search: '', sort: '', view: '', create: false, from: '' });
  assert.deepEqual(parse('/clusters/demo', '?namespace=a'), { plural: 'clusters', namespace: 'a', name: 'demo', search: '', sort: '', view: '', create: false, from: '' });
  for (const [kind, namespace, name] of [[machines, 'a', 'vm'], [clusters, '', 'demo']] as const) {
    const route = parse(href(kind, namespace, name), '');
    assert.deepEqual([route.plural, route.namespace, route.name], [kind.plural, namespace, name]);
  }
});

test('paths of the API', () => {
  assert.equal(path(machines), '/apis/cloudnative.tw/v1alpha1/virtualmachines');
  assert.equal(path(machines, 'a', 'vm'), '/apis/cloudnative.tw/v1alpha1/namespaces/a/virtualmachines/vm');
  assert.equal(path({ group: '', version: 'v1', plural: 'events' }, 'a'), '/api/v1/namespaces/a/events');
});

test('kinds that this page does not know come last', () => {
  const other: Kind = { ...machines, plural: 'networks', kind: 'Network' };
  assert.deepEqual(sorted([other, clusters, machines]).map((k) => k.plural), ['virtualmachines', 'clusters', 'networks']);
  assert.deepEqual([counted(machines, 1), counted(machines, 2000), counted(other, 1)], ['1 Machine', '2,000 Machines', '1 Network']);
});

test('ages are those of kubectl', () => {
  const ages = [0, 119, 120, 190, 600, 10_800, 12_000, 28_800, 172_800, 180_000, 864_000, 63_072_000];
  assert.deepEqual(ages.map((s) => age(0, s * 1000)), ['0s', '119s', '2m', '3m10s', '10m', '3h', '3h20m', '8h', '2d', '2d2h', '10d', '2y']);
  assert.deepEqual([relative(5000, 0), relative(0, 5000), timeIn('2026-11-24T06:00:00Z'), timeIn('2026')], ['in 5s', '5s ago', Date.UTC(2026, 10, 24, 6), undefined]);
});

test('events of both forms', () => {
  const base = { metadata: { uid: 'u', creationTimestamp: '2026-01-01T00:00:00Z' }, reason: 'R', involvedObject: { kind: 'Foo', name: 'f' } };
  const old = eventOf({ ...base, count: 3, lastTimestamp: '2026-01-01T01:00:00Z' } as any);
  const series = eventOf({ ...base, lastTimestamp: null, eventTime: '2026-01-01T01:00:00Z', series: { count: 4, lastObservedTime: '2026-01-01T02:00:00Z' } } as any);
  const once = eventOf({ ...base, lastTimestamp: null, eventTime: '2026-01-01T01:00:00Z' } as any);
  assert.deepEqual([old.count, series.count, once.count], [3, 4, 1]);
  assert.deepEqual([old.last, series.last, once.last], [Date.UTC(2026, 0, 1, 1), Date.UTC(2026, 0, 1, 2), Date.UTC(2026, 0, 1, 1)]);
});

test('YAML without managed fields, and with all else', () => {
  const yaml = 'apiVersion: v1\nmetadata:\n  managedFields:\n  - apiVersion: v1\n    fieldsV1:\n      f:a: {}\n    manager: x\n  name: a\nspec:\n  managedFields:\n  - kept\n';
  assert.equal(withoutManagedFields(yaml), 'apiVersion: v1\nmetadata:\n  name: a\nspec:\n  managedFields:\n  - kept\n');
});

test('children of each kind', () => {
  const of = (plural: string, extra: object) => relatedOf(plural, { metadata: { name: 'x' }, ...extra } as any)?.query;
  assert.equal(of('foos', { spec: { deploymentName: 'd' } }), '&fieldSelector=metadata.name%3Dd');
  assert.deepEqual([of('clusters', {}), of('sampleresources', { status: {} }), of('virtualmachines', {})], [undefined, undefined, undefined]);
});

test('attempts become rarer, up to a limit', () => {
  assert.deepEqual([0, 1, 2, 5, 9, 100].map((n) => backoff(n, () => 1)), [250, 500, 1000, 8000, 8000, 8000]);
  assert.equal(backoff(0, () => 0), 188);
});

test('the verbs of a machine and a CronTab depend on their state', () => {
  const verbs = (plural: string, extra: object) => verbsOf(plural, { metadata: { name: 'x' }, ...extra } as any, new Date('2026-11-24T05:00:00.123Z'));
  const names = (plural: string, extra: object) => verbs(plural, extra).map((v) => v.label);
  assert.deepEqual(names('virtualmachines', { spec: { action: 'active' } }), ['Restart', 'Pause', 'Stop']);
  assert.deepEqual(names('virtualmachines', { spec: { action: 'stopped' } }), ['Start']);
  assert.deepEqual(names('virtualmachines', { spec: { action: 'paused' } }), ['Resume', 'Stop']);
  assert.deepEqual(names('virtualmachines', { spec: { action: 'asleep' } }), ['Wake', 'Stop']);
  const scheduled = { spec: { action: 'active', powerSchedule: { sleep: '0 19 * * *' } }, status: { printableStatus: 'Asleep' } };
  assert.deepEqual(names('virtualmachines', scheduled), ['Wake', 'Stop']);
  assert.deepEqual(verbs('virtualmachines', scheduled)[0].patch, { spec: { action: 'active', wakeRequestedAt: '2026-11-24T05:00:00Z' } });
  assert.deepEqual(names('virtualmachines', { ...scheduled, status: { printableStatus: 'Running' } }), ['Restart', 'Pause', 'Stop']);
  const inPod = (resource: object) => ({ spec: { action: 'active', resource }, status: { host: { driver: 'pod' } } });
  assert.deepEqual(names('virtualmachines', inPod({ rootDisk: '1Gi' })), ['Restart', 'Pause', 'Sleep', 'Stop']);
  assert.deepEqual(names('virtualmachines', inPod({})), ['Restart', 'Pause', 'Stop']);
  const poweredOff = { spec: {}, status: { conditions: [{ type: 'Ready', reason: 'GuestStopped' }] } };
  assert.deepEqual(names('virtualmachines', poweredOff), ['Start', 'Stop']);
  assert.deepEqual(verbs('virtualmachines', poweredOff)[0].patch, { spec: { restartRequestedAt: '2026-11-24T05:00:00Z' } });
  assert.deepEqual(names('crontabs', { spec: { suspend: true, jobTemplate: {} } }), ['Run now', 'Resume']);
  assert.deepEqual(names('crontabs', { spec: {} }), ['Suspend']);
  const failures = (runs: object[]) => ({ spec: { suspendAfterFailures: 1 }, status: { failureStreak: { runs } } });
  assert.deepEqual(verbs('crontabs', failures([])).map((v) => v.patch), [{ spec: { suspend: true } }]);
  assert.deepEqual(names('crontabs', failures([{}])), ['Resume']);
  assert.deepEqual(verbs('crontabs', failures([{}]))[0].patch, { spec: { suspend: false, resumeRequestedAt: '2026-11-24T05:00:00Z' } });
  assert.deepEqual(names('crontabs', { spec: { jobTemplate: {}, schedule: '@daily', parameters: [{ name: 'a' }] } }), ['Run now …', 'Suspend', 'Backfill …']);
  assert.deepEqual(names('crontabs', { spec: { schedules: ['@daily'], concurrencyPolicy: 'Replace' } }), ['Suspend']);
  const backfill = (status?: object) => ({ spec: { schedule: '@daily', backfill: { requestedAt: '2026-11-24T05:00:00.5Z' } }, status: { backfill: status } });
  for (const open of [undefined, { requestedAt: '2026-11-23T05:00:00Z', finishTime: 'then' }, { requestedAt: '2026-11-24T05:00:00Z' }]) assert.deepEqual(names('crontabs', backfill(open)), ['Suspend', 'Cancel the backfill']);
  assert.deepEqual(names('crontabs', backfill({ requestedAt: '2026-11-24T05:00:00Z', finishTime: 'then' })), ['Suspend', 'Backfill …']);
  assert.deepEqual(names('foos', {}), []);
  assert.deepEqual(verbsOf('crontabs', { metadata: { name: 'x', deletionTimestamp: 'now' } } as any, new Date()), []);
});

test('a request is later than the one before, and has no values of an earlier one', () => {
  const now = new Date('2026-11-24T05:00:00.9Z');
  assert.deepEqual(['2026-11-24T05:00:00Z', '2026-11-24T06:00:07+01:00', undefined].map((before) => requestAt(now, before)), ['2026-11-24T05:00:01Z', '2026-11-24T05:00:08Z', '2026-11-24T05:00:00Z']);
  const object = { spec: { runParameters: { a: '1', b: '2' } } } as any;
  assert.deepEqual(runAt(now, object, { b: '', c: '3' }), { spec: { runRequestedAt: '2026-11-24T05:00:00Z', runParameters: { a: null, b: '', c: '3' } } });
  assert.deepEqual(runAt(now, object), { spec: { runRequestedAt: '2026-11-24T05:00:00Z', runParameters: null } });
});

test('a difference has the changed lines and those around them', () => {
  const text = (before: string, after: string, around: number) => diff(before, after, around).map((l) => l.kind + l.text).join('|');
  assert.equal(text('a\nb\nc\nd', 'a\nB\nc\nd', 1), ' a|-b|+B| c');
  assert.equal(text('a\nb', 'a\nb', 3), '');
  assert.equal(text('a', 'a\nb', 0), '+b');
});

test('the form of a machine makes YAML, whatever is typed', () => {
  assert.match(machineYAML(machines, 'a', { ...newMachine, name: 'web', image: 'debian-13' }), /image:\n    name: debian-13\n$/);
  const yaml = machineYAML(machines, 'a', { ...newMachine, name: '1e3', memory: '1: 2', image: 'https://example.com/x', sha256: '00' });
  assert.equal(yaml, 'apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata:\n  name: "1e3"\n  namespace: a\nspec:\n  resource:\n    cpu: "1"\n    memory: "1: 2"\n' +
    '  image:\n    url: "https://example.com/x"\n    sha256: "00"\n');
  assert.match(machineYAML(machines, 'a', { ...newMachine, name: 'web', sshKeys: 'ssh-ed25519 AAAA "me"\n\nssh-rsa BBBB' }),
    /    rootDisk: 10Gi\n  cloudInit:\n    userData: \|\n      #cloud-config\n      ssh_authorized_keys:\n      - "ssh-ed25519 AAAA \\"me\\""\n      - "ssh-rsa BBBB"\n$/);
  assert.equal(templateOf(clusters, 'a'), 'apiVersion: clusterprovisioner.rke.io/v1alpha1\nkind: Cluster\nmetadata:\n  name: example\nspec: {}\n');
});

test('a log is shown without control characters', () => {
  assert.equal(readable('\x1b[1;32mok\x1b[0m\r\n\x1b]0;title\x07next\x1b(B\x00\r\n'), 'ok\nnext\n');
  const long = readable('first\n' + 'x'.repeat(300_000) + '\nlast\n' + 'y'.repeat(200_000));
  assert.ok(long.startsWith('last\n'), 'the end of a long log, from the begin of a line');
});

test('the log of a run is that of its newest Pod and of its work', () => {
  const pod = (name: string, creationTimestamp: string) => ({ metadata: { name, creationTimestamp, uid: name, resourceVersion: '1' }, spec: { containers: [{ name: 'main' }], initContainers: [{ name: 'prepare' }] } });
  const all = [pod('b', '2026-01-02T00:00:00Z'), pod('c', '2026-01-03T00:00:00Z'), pod('a', '2026-01-01T00:00:00Z')];
  assert.equal(newest(all)?.metadata.name, 'c');
  assert.deepEqual(containersOf(all[0]), ['main', 'prepare']);
});

test('a pause of the samples is a gap in the graphs', () => {
  const values = [1, null, 3];
  const usage = {
    intervalSeconds: 15, unixMilliseconds: [0, 15_000, 600_000], cpuPercent: [5, 10, 20], memoryPercent: [1, 2, 3],
    diskReadBytesPerSecond: values, diskWrittenBytesPerSecond: values, networkReceivedBytesPerSecond: values, networkTransmittedBytesPerSecond: [0, 0, null],
  };
  const [cpu, , disks, network] = graphs(usage);
  assert.deepEqual(cpu.data, [[0, 15, 16, 600], [5, 10, null, 20]]);
  assert.deepEqual(disks.data, [[0, 15, 16, 600], [1, null, null, 3], [1, null, null, 3]]);
  assert.equal(cpu.latest, '20 %');
  assert.equal(network.latest, 'received 3 B/s, transmitted unknown');
  assert.deepEqual([0, 999, 1000, 12_345, 9.9e8].map(bytesPerSecond), ['0 B/s', '999 B/s', '1.0 kB/s', '12 kB/s', '990 MB/s']);
});

test('runs have their lag, their end and their result; those of another owner are left out', () => {
  const job = (name: string, scheduled: string, extra: object, owner = 'o') => ({
    metadata: { name, uid: name, creationTimestamp: '2026-01-01T03:00:02Z', annotations: { 'batch.kubernetes.io/cronjob-scheduled-timestamp': scheduled }, ownerReferences: [{ uid: owner }] }, ...extra,
  });
  const end = (type: string) => ({ status: { conditions: [{ type, status: 'True', lastTransitionTime: '2026-01-01T03:05:00Z' }] } });
  const runs = runsOf([
    job('a', '2026-01-01T04:00:00+01:00', end('Complete')), job('b', '2026-01-01T03:00:01Z', end('Failed')), job('c', '2026-01-01T02:00:00Z', {}), job('d', '2026-01-01T03:00:00Z', {}, 'other'),
  ] as any, 'o');
  assert.deepEqual(runs.map((r) => [r.job, r.result, r.created - r.scheduled, r.finished && r.finished - r.created]), [['b', 'failed', 1000, 298_000], ['a', 'succeeded', 2000, 298_000], ['c', 'active', 3_602_000, undefined]]);
});

test('a run tells why it failed, after how many attempts, and its parameters', () => {
  const job = {
    metadata: { name: 'a', uid: 'a', creationTimestamp: '2026-01-01T03:00:02Z', ownerReferences: [{ uid: 'o' }], annotations: { 'crontab.stable.example.com/backfill-requested-at': 'x', 'crontab.stable.example.com/parameters': '{"b":"1"}' } },
    status: { failed: 2, active: 1, conditions: [{ type: 'Failed', status: 'True', reason: 'BackoffLimitExceeded', lastTransitionTime: '2026-01-01T03:05:00Z' }] },
  };
  const changed = { ...job, metadata: { ...job.metadata, annotations: { 'crontab.stable.example.com/parameters': '{' } } };
  const [run, other] = runsOf([job, changed] as any, 'o');
  assert.deepEqual([run.reason, run.attempts, run.parameters, run.backfill, run.manual, other.parameters, other.backfill], ['BackoffLimitExceeded', 3, { b: '1' }, true, false, {}, false]);
  const pod = (owner: string, ...ends: [number, string][]) => ({ metadata: { ownerReferences: [{ uid: owner }] }, status: { containerStatuses: ends.map(([exitCode, finishedAt]) => ({ state: { terminated: { exitCode, finishedAt } } })) } });
  const pods = [pod('a', [3, '2026-01-01T03:04:00Z'], [0, '2026-01-01T03:06:00Z']), pod('a', [2, '2026-01-01T03:03:00Z']), pod('b', [7, '2026-01-01T03:09:00Z'])] as any;
  assert.deepEqual(['a', 'b', 'c'].map((uid) => exitCodeOf(pods, uid)), [3, 7, undefined]);
});

test('a time line has few round ticks, and a span with the next run', () => {
  const now = Date.UTC(2026, 0, 1, 12, 7);
  assert.equal(ticks(now, now + 3_600_000).length, 4);
  assert.ok(ticks(now, now + 365 * 86_400_000).length < 8);
  assert.equal(spanFor(now + 1000, now), 3_600_000);
  assert.equal(spanFor(now + 20 * 3_600_000, now), 7 * 86_400_000);
  assert.equal(spanFor(NaN, now), 86_400_000);
  assert.deepEqual(['2026-01-01T00:00:00Z', '2026-01-01T00:00:00+05:30', '2026-01-01T00:00:00-03:00'].map(offsetOf), [0, 330, -180]);
});
