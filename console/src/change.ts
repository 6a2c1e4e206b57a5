import { APIError, send } from './api';
import { path, type Kind } from './kinds';
import type { Obj } from './live';
import { texts } from './texts';

/** Changes an object by a JSON merge patch. Returns why that failed; '' if it did not. */
export async function change(kind: Kind, { metadata }: Obj, patch: object): Promise<string> {
  try {
    await send('PATCH', `${path(kind, metadata.namespace, metadata.name)}?fieldManager=keelson-console`, patch, 'application/merge-patch+json');
    return '';
  } catch (err) {
    return err instanceof APIError ? err.message || texts.lostConsole : String(err);
  }
}
