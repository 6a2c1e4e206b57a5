// Small graphs of usage in the list of machines, of the rows on the screen only.
import { useEffect } from 'preact/hooks';
import { getJSON } from './api';
import { Pool } from './discovery';
import { path } from './kinds';
import { percent, type MachineUsage } from './samples';
import { Source, useSource } from './signal';
import { texts } from './texts';

const fresh = 60_000;
const young = 15_000; // of a machine with few samples
const few = 4;
const afterFailure = 300_000;
const most = 500; // machines that are kept

interface Entry { at: number; asked: boolean; usage?: MachineUsage }

/** The usage of machines. A few requests run at a time, and those of rows that have left the screen are not made. */
export class Usages extends Source {
  private entries = new Map<string, Entry>();
  private shown = new Map<string, number>();
  private pool = new Pool(4);

  constructor(private readonly read: (path: string) => Promise<MachineUsage> = getJSON, private readonly now: () => number = Date.now) {
    super();
  }

  /** A row is on the screen. Returns how it leaves. */
  show(at: string): () => void {
    this.shown.set(at, (this.shown.get(at) ?? 0) + 1);
    this.refresh(at);
    return () => {
      const left = this.shown.get(at)! - 1;
      if (left) this.shown.set(at, left);
      else this.shown.delete(at);
    };
  }

  of(at: string): MachineUsage | undefined {
    return this.entries.get(at)?.usage;
  }

  /** Asks for what is shown and not fresh. */
  refreshAll(): void {
    for (const at of this.shown.keys()) this.refresh(at);
  }

  private refresh(at: string): void {
    const entry = this.entries.get(at) ?? { at: -Infinity, asked: false };
    if (entry.asked || this.now() < entry.at) return;
    this.entries.delete(at); // the oldest come first
    this.entries.set(at, entry);
    if (this.entries.size > most) this.entries.delete(this.entries.keys().next().value!);
    entry.asked = true;
    this.pool.add(async () => {
      try {
        if (!this.shown.has(at)) return; // the next time
        entry.usage = await this.read(at);
        entry.at = this.now() + (entry.usage.unixMilliseconds.length < few ? young : fresh);
      } catch {
        entry.usage = undefined;
        entry.at = this.now() + afterFailure; // the page of the machine says why
      } finally {
        entry.asked = false;
      }
      this.changed();
    });
  }
}

const usages = new Usages();

/** The length of a graph of a machine that was started just now, in milliseconds. */
const shortest = 600_000;

/** The line of a graph: one piece for each part without a gap, in a box of the size. A piece of one sample is a dot. */
export function lineOf(usage: MachineUsage, width: number, height: number): string {
  const { unixMilliseconds: times, cpuPercent: values } = usage;
  const to = times.at(-1)!;
  const from = Math.min(times[0], to - shortest);
  let line = '';
  let pen = 'M';
  values.forEach((value, i) => {
    if (value === null || (i > 0 && times[i] - times[i - 1] > 3000 * usage.intervalSeconds)) pen = 'M';
    if (value === null) return;
    const x = ((times[i] - from) / (to - from)) * width;
    line += `${pen}${x.toFixed(1)} ${(height - (Math.min(value, 100) / 100) * height).toFixed(1)}${pen === 'M' ? 'h0' : ''}`;
    pen = 'L';
  });
  return line;
}

const [width, height] = [96, 22];

export function Spark({ namespace, name }: { namespace: string; name: string }) {
  const at = `${path({ group: 'access.cloudnative.tw', version: 'v1alpha1', plural: 'virtualmachines' }, namespace, name)}/usage`;
  useSource(usages);
  useEffect(() => usages.show(at), [at]);
  useEffect(() => {
    const timer = setInterval(() => usages.refreshAll(), young / 3);
    return () => clearInterval(timer);
  }, []);
  const usage = usages.of(at);
  if (!usage?.unixMilliseconds.length) return null;
  const latest = usage.cpuPercent.at(-1) ?? null;
  const label = `${texts.usage.spark}: ${latest === null ? texts.unknown : percent(latest)}`;
  return <svg class="spark" role="img" aria-label={label} width={width} height={height} viewBox={`0 -1 ${width} ${height + 2}`}><path d={lineOf(usage, width, height)} /></svg>;
}
