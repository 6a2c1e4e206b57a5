// What the page of a machine has besides the parts of every object: its usage, its serial console and its log.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { path } from './kinds';
import { Lazy } from './lazy';
import type { Obj } from './live';
import { LogView } from './log';
import { useMayAccess } from './may';
import { Copy, Section } from './parts';
import { texts } from './texts';

export function MachineAccess({ object }: { object: Obj }) {
  const { namespace, name } = object.metadata;
  const may = useMayAccess(namespace!, name);
  const at = path({ group: 'access.cloudnative.tw', version: 'v1alpha1', plural: 'virtualmachines' }, namespace, name);
  return (
    <>
      <Reach object={object} />
      <Fold title={texts.usage.title} denied={may.usage}>{() => <Lazy load={() => import('./usage')} path={`${at}/usage`} />}</Fold>
      {object.spec?.display?.type === 'VGA' && (
        <Fold title={texts.screen.title} denied={may.screen}>{() => <Lazy load={() => import('./screen')} namespace={namespace!} name={name} screenshot={`${at}/screenshot`} mayNot={may.screenshot} />}</Fold>
      )}
      <Fold title={texts.terminal} denied={may.console}>{() => <Lazy load={() => import('./terminal')} namespace={namespace!} name={name} />}</Fold>
      <Fold title={texts.serialLog} denied={may.log}>{() => <LogView path={`${at}/log?tail=1000&follow=true`} />}</Fold>
    </>
  );
}

/** How one reaches the machine, and the disks that it has. */
function Reach({ object }: { object: Obj }) {
  const { namespace, name } = object.metadata;
  const addresses: string[] = object.status?.server?.addresses ?? [];
  const disks: any[] = object.spec?.disks ?? [];
  const line = `keelson vm ssh ${name} --namespace ${namespace}`;
  return (
    <Section title={texts.reach.title}>
      <dl class="facts wide">
        <div><dt>{texts.reach.ssh}</dt><dd><code>{line}</code> <Copy text={line} /></dd></div>
        {addresses.map((address) => <div key={address}><dt>{texts.reach.address}</dt><dd><code>{address}</code> <Copy text={address} /></dd></div>)}
        {portsOf(object).map((p) => <div key={p.name}><dt>{texts.reach.port(p.name, p.port, p.protocol)}</dt><dd>{p.address ? <><code>{p.address}</code> <Copy text={p.address} /></> : texts.reach.notForwarded}</dd></div>)}
        {object.spec?.resource?.rootDisk && <div><dt>{texts.reach.rootDisk}</dt><dd>{object.spec.resource.rootDisk}</dd></div>}
        {disks.map((d) => <div key={d.name}><dt>{texts.reach.disk(d.name)}</dt><dd>{d.virtualDisk ? <a href={`/virtualdisks/${namespace}/${d.virtualDisk}`}>{d.virtualDisk}</a> : (d.size ?? texts.reach.sizeOfImage)}</dd></div>)}
      </dl>
    </Section>
  );
}

/** The ports of the spec, with the addresses at which they are forwarded now. */
export function portsOf(object: Obj): { name: string; port: number; protocol: string; address?: string }[] {
  const endpoints: { name: string; address: string }[] = object.status?.server?.endpoints ?? [];
  return (object.spec?.ports ?? []).map((p: any) => ({ ...p, protocol: p.protocol ?? 'TCP', address: endpoints.find((e) => e.name === p.name)?.address }));
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
