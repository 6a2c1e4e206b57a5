// What the documentation says about the reasons of conditions. It is read when the first object is not ready.
import { getOwn } from './api';
import { Source } from './signal';

export interface Remedy {
  plural: string;
  condition: string;
  reason: string;
  text: string;
  page: string;
}

/** What is said about a reason: of the condition Ready, or of another one that a summary may have it from. */
export function remedyIn(all: Remedy[], plural: string, reason: string): Remedy | undefined {
  const found = all.filter((r) => r.plural === plural && r.reason === reason);
  return found.find((r) => r.condition === 'Ready') ?? found[0];
}

class Remedies extends Source {
  private all: Remedy[] = [];
  private asked = false;

  of(plural: string, reason: string): Remedy | undefined {
    if (!this.asked) {
      this.asked = true;
      getOwn<Remedy[]>('/remedies').then((all) => { this.all = all; this.changed(); }, () => { this.asked = false; }); // asked again with the next object
    }
    return remedyIn(this.all, plural, reason);
  }
}

export const remedies = new Remedies();
