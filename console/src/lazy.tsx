import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { texts } from './texts';

/** A part that is not in the first view is loaded when it is shown. */
export function Lazy<P extends object>({ load, ...props }: { load: () => Promise<{ default: ComponentType<P> }> } & P) {
  const [Part, set] = useState<ComponentType<P>>();
  const [failed, fail] = useState(false);
  useEffect(() => {
    load().then((m) => set(() => m.default), () => fail(true));
  }, []);
  if (failed) return <p class="hint">{texts.lostConsole}</p>;
  return Part ? <Part {...(props as unknown as P)} /> : <p>{texts.loading}</p>;
}
