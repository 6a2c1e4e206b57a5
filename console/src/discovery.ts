// The kinds of the API besides those of Keelson, as its discovery has them.
import { APIError, getOwn, send } from './api';
import { type Kind } from './kinds';
import { Source } from './signal';
import { texts } from './texts';

interface Answer { kinds: Kind[]; access: boolean }

export class Discovery extends Source {
  kinds: Kind[] = [];
  /** Whether the API gives access to machines; undefined while it is not known. */
  access?: boolean;
  phase: 'loading' | 'there' | 'failed' = 'loading';
  message = '';
  private asked = false;

  /** Asks once, and again after a failure. */
  load(): void {
    if (this.asked) return;
    this.asked = true;
    getOwn<Answer>('/discovery').then(
      ({ kinds, access }) => {
        this.kinds = kinds.map((k) => ({ ...k, other: true }));
        this.access = access;
        this.phase = 'there';
        this.changed();
      },
      (err) => {
        this.message = err instanceof APIError ? err.message || texts.lostConsole : String(err);
        this.phase = 'failed';
        this.changed();
        setTimeout(() => { this.asked = false; this.load(); }, 15_000);
      },
    );
  }
}

/** Runs tasks, a few at a time. */
export class Pool {
  private waiting: (() => Promise<unknown>)[] = [];
  private running = 0;

  constructor(private readonly most: number) {}

  add(task: () => Promise<unknown>): void {
    this.waiting.push(task);
    this.next();
  }

  private next(): void {
    while (this.running < this.most && this.waiting.length) {
      this.running++;
      void this.waiting.shift()!().catch(() => {}).finally(() => { this.running--; this.next(); });
    }
  }
}

const questions = new Pool(6);

/** Which kinds the user may list in a namespace: why not, by the path of the kind. */
export class Listable extends Source {
  private answers = new Map<string, string>();

  /** Why a kind is not listed; '' if it is, undefined while it is not known. */
  why(kind: Kind, namespace: string): string | undefined {
    const where = kind.namespaced ? namespace : '';
    const key = [kind.group, kind.plural, where].join('/');
    if (!this.answers.has(key)) {
      this.answers.set(key, 'asked');
      questions.add(async () => {
        const attributes = { verb: 'list', group: kind.group, resource: kind.plural, namespace: where || undefined };
        try {
          const { status } = await send<any>('POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
            apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec: { resourceAttributes: attributes },
          });
          this.answers.set(key, status.allowed ? '' : texts.mayNot('list', kind.plural, where || undefined));
        } catch {
          this.answers.delete(key); // asked again when the page is shown again
          return;
        }
        this.changed();
      });
    }
    const found = this.answers.get(key);
    return found === 'asked' ? undefined : found;
  }
}
