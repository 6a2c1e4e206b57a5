// Which objects belong to an object. Those with another owner are not shown.
import type { Kind } from './kinds';
import type { Obj } from './live';

export type Related = Kind & { query: string };

const byName = (name: string) => `&fieldSelector=${encodeURIComponent(`metadata.name=${name}`)}`;

/** The kind of the children, and the query that narrows them down; undefined if there are none. */
export function relatedOf(plural: string, object: Obj): Related | undefined {
  switch (plural) {
    case 'foos':
      return object.spec?.deploymentName && { group: 'apps', version: 'v1', plural: 'deployments', kind: 'Deployment', namespaced: true, query: byName(object.spec.deploymentName) };
    case 'sampleresources':
      return object.status?.podName && { group: '', version: 'v1', plural: 'pods', kind: 'Pod', namespaced: true, query: byName(object.status.podName) };
    case 'clusters':
      return object.status?.kubeconfigRef?.name && { group: 'clusterprovisioner.rke.io', version: 'v1alpha1', plural: 'kubeconfigs', kind: 'Kubeconfig', namespaced: false, query: byName(object.status.kubeconfigRef.name) };
    default:
      return undefined;
  }
}
