import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Pool } from '../src/discovery';
import { href, key, own, title, type Kind } from '../src/kinds';
import { findKinds } from '../src/kindspage';
import { bytes, cpus, fullest, total, type Node } from '../src/capacity';
import { remedyIn } from '../src/remedies';
import { nodesOf, snapshotName, usersOf } from '../src/snapshots';
import { templateOf } from '../src/templates';

const about = { name: 'demo', uid: 'u', resourceVersion: '1', creationTimestamp: '2026-01-01T00:00:00Z' };

test('the nodes of a Cluster are those of its spec; without any, there is one simulated node', () => {
  const of = (nodes?: object) => nodesOf({ metadata: about, spec: { nodes } });
  assert.deepEqual([of(), of({ simulated: 3 }), of({ real: 2 }), of({ simulated: 0 })], ['1 simulated', '3 simulated', '2 real', '0 simulated']);
});

test('a user has a Secret as soon as the status names it', () => {
  const secretRef = { namespace: 'keelson-system', name: 'demo-kubeconfig-alice' };
  const users = usersOf({ metadata: about, spec: { users: [{ name: 'alice', groups: ['dev'] }, { name: 'ci' }] }, status: { users: [{ name: 'alice', secretRef, notAfter: '2027-01-01T00:00:00Z' }] } });
  assert.deepEqual(users, [{ name: 'alice', groups: ['dev'], secret: secretRef, notAfter: '2027-01-01T00:00:00Z' }, { name: 'ci', groups: [], secret: undefined, notAfter: undefined }]);
});

test('a snapshot is named after its Cluster and the time, and a new Cluster names the snapshot', () => {
  assert.equal(snapshotName('demo', new Date('2026-11-25T16:04:05.6Z')), 'demo-20261125160405');
  const clusters = { group: 'clusterprovisioner.rke.io', version: 'v1alpha1', plural: 'clusters', kind: 'Cluster', namespaced: false };
  assert.match(templateOf(clusters, 'default', 'before'), /name: copy\nspec:\n  from:\n    snapshot: before\n$/);
  assert.match(templateOf(clusters, 'default'), /spec: \{\}\n$/);
});

test('a remedy is that of the condition Ready, before that of another one', () => {
  const of = (condition: string, text: string) => ({ plural: 'clusters', condition, reason: 'Stopped', text, page: '' });
  assert.equal(remedyIn([of('Provisioned', 'a'), of('Ready', 'b')], 'clusters', 'Stopped')?.text, 'b');
  assert.equal(remedyIn([of('Provisioned', 'a')], 'clusters', 'Stopped')?.text, 'a');
  assert.equal(remedyIn([of('Ready', 'a')], 'foos', 'Stopped'), undefined);
});

test('nodes are added up, the fullest first, and usage only if it is known of all', () => {
  const node = (name: string, requested: number, used?: number): Node => ({
    name, ready: true, simulated: false, pods: 1, allocatable: { cpu: 4, memory: 8 * 2 ** 30 }, requested: { cpu: requested, memory: 0 }, used: used === undefined ? undefined : { cpu: used, memory: 0 },
  });
  const all = [node('a', 1, 0.5), node('b', 3)];
  assert.deepEqual(fullest(all).map((n) => n.name), ['b', 'a']);
  assert.deepEqual([total(all).requested.cpu, total(all).pods, total(all).used], [4, 2, undefined]);
  assert.deepEqual([cpus(0.25), cpus(16), bytes(8 * 2 ** 30), bytes(1536 * 2 ** 10)], ['0.25', '16', '8 GiB', '1.5 MiB']);
});

test('other kinds have addresses with their group, and nothing of the kinds of Keelson with the same plural', () => {
  const foreign: Kind = { group: 'cluster.x-k8s.io', version: 'v1beta1', plural: 'clusters', kind: 'Cluster', namespaced: true, other: true };
  const policies: Kind = { group: 'networking.k8s.io', version: 'v1', plural: 'networkpolicies', kind: 'NetworkPolicy', namespaced: true, other: true };
  const pods: Kind = { group: '', version: 'v1', plural: 'pods', kind: 'Pod', namespaced: true, other: true };
  assert.deepEqual([foreign, policies, pods].map((k) => href(k, 'a', 'x')), ['/clusters.cluster.x-k8s.io/a/x', '/networkpolicies.networking.k8s.io/a/x', '/pods/a/x']);
  assert.deepEqual([title(foreign), title(policies), own(foreign), key(foreign)], ['Clusters', 'NetworkPolicies', '', '']);
  assert.deepEqual(findKinds([pods, policies, foreign], 'network').map((k) => k.kind), ['NetworkPolicy']);
  assert.deepEqual(findKinds([policies, pods], 'core').map((k) => k.kind), ['Pod']);
});

test('a pool runs a few tasks at a time, also after one fails', async () => {
  const pool = new Pool(2);
  let running = 0, most = 0, done = 0;
  await new Promise<void>((resolve) => {
    for (let i = 0; i < 7; i++) {
      pool.add(async () => {
        most = Math.max(most, ++running);
        await Promise.resolve();
        running--;
        if (++done === 7) resolve();
        if (i % 2) throw new Error('refused');
      });
    }
  });
  assert.equal(most, 2);
});
