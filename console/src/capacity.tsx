// What the nodes and this host have, what Pods and machines request of it, and what is in use.
import { useEffect, useState } from 'preact/hooks';
import { APIError, getOwn } from './api';
import { Badge, Empty, Scroll, Section } from './parts';
import { texts } from './texts';

export interface Amounts { cpu: number; memory: number }

export interface Node {
  name: string;
  ready: boolean;
  simulated: boolean;
  allocatable: Amounts;
  requested: Amounts;
  pods: number;
  /** Missing where the API serves no metrics. */
  used?: Amounts;
}

/** The host of `keelson up`, of which its machines request. */
export interface Host { name: string; total: Amounts; requested: Amounts; machines: number; used: Amounts }

const interval = 30_000;
const shownNodes = 8;

/** All nodes as one. What is in use is known only if it is known of each. */
export function total(nodes: Node[]): Node {
  const sum = (of: (n: Node) => Amounts): Amounts => nodes.reduce((all, n) => ({ cpu: all.cpu + of(n).cpu, memory: all.memory + of(n).memory }), { cpu: 0, memory: 0 });
  return {
    name: texts.capacity.all(nodes.length), ready: nodes.every((n) => n.ready), simulated: nodes.every((n) => n.simulated), allocatable: sum((n) => n.allocatable), requested: sum((n) => n.requested),
    pods: nodes.reduce((n, node) => n + node.pods, 0), used: nodes.every((n) => n.used) ? sum((n) => n.used!) : undefined,
  };
}

/** The fullest nodes first. */
export function fullest(nodes: Node[]): Node[] {
  const part = (n: Node) => Math.max(n.requested.cpu / n.allocatable.cpu || 0, n.requested.memory / n.allocatable.memory || 0);
  return [...nodes].sort((a, b) => part(b) - part(a) || a.name.localeCompare(b.name));
}

export function cpus(n: number): string {
  return n.toLocaleString('en', { maximumFractionDigits: n < 10 ? 2 : 0 });
}

export function bytes(n: number): string {
  let unit = 'B';
  for (const next of ['KiB', 'MiB', 'GiB', 'TiB']) {
    if (n < 1024) break;
    n /= 1024;
    unit = next;
  }
  return `${n.toLocaleString('en', { maximumFractionDigits: n < 10 ? 1 : 0 })} ${unit}`;
}

export function Capacity() {
  const [found, set] = useState<{ nodes: Node[]; host?: Host }>();
  const [message, say] = useState('');
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const read = async () => {
      try {
        set(await getOwn('/capacity', abort.signal));
        say('');
      } catch (err) {
        if (!abort.signal.aborted) say(err instanceof APIError ? err.message || texts.lostConsole : String(err));
      }
      if (!abort.signal.aborted) timer = setTimeout(read, interval) as unknown as number;
    };
    void read();
    return () => { abort.abort(); clearTimeout(timer); };
  }, []);
  const { nodes, host } = found ?? {};
  const several = nodes && nodes.length > 1;
  return (
    <Section title={texts.capacity.title} count={nodes?.length}>
      {message && <p class="hint">{message}</p>}
      {!nodes && !message && <Empty title={texts.loading} />}
      {nodes?.length === 0 && !host && <Empty title={texts.capacity.none} />}
      {nodes && (nodes.length > 0 || host) && (
        <Scroll>
          <table class="plain capacity">
            <thead><tr>
              <th scope="col">{texts.capacity.node}</th><th scope="col">{texts.capacity.cpu}</th><th scope="col">{texts.capacity.memory}</th><th scope="col" class="number">{texts.capacity.pods}</th>
            </tr></thead>
            <tbody>
              {host && <HostRow host={host} />}
              {several && <NodeRow node={total(nodes)} />}
              {fullest(nodes).slice(0, shownNodes).map((n) => <NodeRow key={n.name} node={n} />)}
            </tbody>
          </table>
          {nodes.length > shownNodes && <p>{texts.more(nodes.length - shownNodes)}</p>}
        </Scroll>
      )}
    </Section>
  );
}

function HostRow({ host }: { host: Host }) {
  return (
    <tr>
      <th scope="row">{host.name} <Badge tone="calm">{texts.capacity.host}</Badge></th>
      <td><Part what={`${host.name}: ${texts.capacity.cpu}`} all={host.total.cpu} requested={host.requested.cpu} used={host.used.cpu} text={cpus} /></td>
      <td><Part what={`${host.name}: ${texts.capacity.memory}`} all={host.total.memory} requested={host.requested.memory} used={host.used.memory} text={bytes} /></td>
      <td class="number">{texts.capacity.machines(host.machines)}</td>
    </tr>
  );
}

function NodeRow({ node }: { node: Node }) {
  return (
    <tr>
      <th scope="row">{node.name} {!node.ready && <Badge tone="bad">{texts.capacity.notReady}</Badge>} {node.simulated && <Badge tone="calm">{texts.capacity.simulated}</Badge>}</th>
      <td><Part what={`${node.name}: ${texts.capacity.cpu}`} all={node.allocatable.cpu} requested={node.requested.cpu} used={node.used?.cpu} text={cpus} /></td>
      <td><Part what={`${node.name}: ${texts.capacity.memory}`} all={node.allocatable.memory} requested={node.requested.memory} used={node.used?.memory} text={bytes} /></td>
      <td class="number">{node.pods.toLocaleString('en')}</td>
    </tr>
  );
}

function Part({ what, all, requested, used, text }: { what: string; all: number; requested: number; used?: number; text: (n: number) => string }) {
  return (
    <>
      <meter aria-label={what} min={0} max={all || 1} value={requested} high={all * 0.9} />
      <div>{texts.capacity.requested(text(requested), text(all))}{used !== undefined && <>, {texts.capacity.used(text(used))}</>}</div>
    </>
  );
}
