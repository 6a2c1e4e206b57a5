// What the user may do: asked of the API, so that the page need not guess.
import { useEffect, useState } from 'preact/hooks';
import { send } from './api';
import type { Kind } from './kinds';
import { texts } from './texts';

/** Why a verb is refused; '' if it is allowed, undefined while it is not known. */
export type May = Record<string, string | undefined>;

export function useMay(kind: Kind, namespace: string | undefined, name: string, verbs: readonly string[]): May {
  return useReview(verbs, [kind, namespace, name], (verb) => ({ namespace, name: name || undefined, verb, group: kind.group, resource: kind.plural }));
}

const subresources = ['console', 'log', 'screen', 'screenshot', 'usage'] as const;

/** The same for the subresources of a machine in the access API. */
export function useMayAccess(namespace: string, name: string): May {
  return useReview(subresources, [namespace, name], (subresource) => ({ namespace, name, verb: 'get', group: 'access.cloudnative.tw', resource: 'virtualmachines', subresource }));
}

const ofUsage = ['usage'] as const;

/** Whether the user may read the usage of all machines in a namespace; of everybody where the API serves it. */
export function useMayUsage(served: boolean, namespace: string): boolean {
  const may = useReview(served ? ofUsage : none, [served, namespace], (subresource) => ({ namespace: namespace || undefined, verb: 'get', group: 'access.cloudnative.tw', resource: 'virtualmachines', subresource }));
  return served && may.usage === '';
}

const none: string[] = [];

/** Whether the user may read the kubeconfig of a Cluster, and reach its API. */
export function useMayCluster(name: string, secret: { namespace: string; name: string } | undefined): May {
  return useReview(secret ? clusterKeys : ['proxy'], [name, secret?.namespace, secret?.name], (key) => (key === 'proxy'
    ? { name, verb: 'get', group: 'access.cloudnative.tw', resource: 'clusters', subresource: 'proxy' }
    : { namespace: secret!.namespace, name: secret!.name, verb: 'get', group: '', resource: 'secrets' }));
}

/** Whether the user may read each of some Secrets, by their names. */
export function useMaySecrets(secrets: { namespace: string; name: string }[]): May {
  return useReview(secrets.map((s) => s.name), [secrets.map((s) => `${s.namespace}/${s.name}`).join()], (name) => ({ namespace: secrets.find((s) => s.name === name)!.namespace, name, verb: 'get', group: '', resource: 'secrets' }));
}

const clusterKeys = ['proxy', 'kubeconfig'] as const;

interface Attributes { namespace?: string; name?: string; verb: string; group: string; resource: string; subresource?: string }

/** Asks one question for each key. */
function useReview(keys: readonly string[], inputs: unknown[], attributesOf: (key: string) => Attributes): May {
  const [may, set] = useState<May>({});
  useEffect(() => {
    for (const key of keys) {
      const attributes = attributesOf(key);
      const resource = attributes.resource + (attributes.subresource ? `/${attributes.subresource}` : '');
      send<any>('POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
        apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec: { resourceAttributes: attributes },
      }).then(
        ({ status }) => set((old) => ({ ...old, [key]: status.allowed ? '' : texts.mayNot(attributes.verb, resource, attributes.namespace) + (status.reason ? `: ${status.reason}` : '') })),
        () => set((old) => ({ ...old, [key]: '' })), // the request itself tells
      );
    }
  }, inputs);
  return may;
}
