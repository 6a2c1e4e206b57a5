// What the user may do: asked of the API, so that the page need not guess.
import { useEffect, useState } from 'preact/hooks';
import { send } from './api';
import type { Kind } from './kinds';
import { texts } from './texts';

/** Why a verb is refused; '' if it is allowed, undefined while it is not known. */
export type May = Record<string, string | undefined>;

export function useMay(kind: Kind, namespace: string | undefined, name: string, verbs: readonly string[]): May {
  const [may, set] = useState<May>({});
  useEffect(() => {
    for (const verb of verbs) {
      const attributes = { namespace, name: name || undefined, verb, group: kind.group, resource: kind.plural };
      send<any>('POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
        apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec: { resourceAttributes: attributes },
      }).then(
        ({ status }) => set((old) => ({ ...old, [verb]: status.allowed ? '' : texts.mayNot(verb, kind.plural, namespace) + (status.reason ? `: ${status.reason}` : '') })),
        () => set((old) => ({ ...old, [verb]: '' })), // the request itself tells
      );
    }
  }, [kind, namespace, name]);
  return may;
}
