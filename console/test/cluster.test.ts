import assert from 'node:assert/strict';
import { test } from 'node:test';
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
