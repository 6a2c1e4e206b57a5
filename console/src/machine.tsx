// What the page of a machine has besides the parts of every object: its usage, its serial console and its log.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { path } from './kinds';
import { Lazy } from './lazy';
import type { Obj } from './live';
import { LogView } from './log';
import { useMayAccess } from './may';
import { texts } from './texts';

export function MachineAccess({ object }: { object: Obj }) {
  const { namespace, name } = object.metadata;
  const may = useMayAccess(namespace!, name);
  const at = path({ group: 'access.cloudnative.tw', version: 'v1alpha1', plural: 'virtualmachines' }, namespace, name);
  return (
    <>
      <Fold title={texts.usage.title} denied={may.usage}>{() => <Lazy load={() => import('./usage')} path={`${at}/usage`} />}</Fold>
      {object.spec?.display?.type === 'vga' && (
        <Fold title={texts.screen.title} denied={may.screen}>{() => <Lazy load={() => import('./screen')} namespace={namespace!} name={name} screenshot={`${at}/screenshot`} mayNot={may.screenshot} />}</Fold>
      )}
      <Fold title={texts.terminal} denied={may.console}>{() => <Lazy load={() => import('./terminal')} namespace={namespace!} name={name} />}</Fold>
      <Fold title={texts.serialLog} denied={may.log}>{() => <LogView path={`${at}/log?tail=1000&follow=true`} />}</Fold>
    </>
  );
}

/** A part that is made when it is opened, unless the user may not see it. */
export function Fold({ title, denied, children }: { title: string; denied?: string; children: () => ComponentChildren }) {
  const [open, set] = useState(false);
  return (
    <details class="card" onToggle={(e) => set(e.currentTarget.open)}>
      <summary><h2>{title}</h2></summary>
      {open && (denied ? <p class="hint">{denied}</p> : denied === '' && children())}
    </details>
  );
}
