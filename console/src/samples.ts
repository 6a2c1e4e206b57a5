// The usage of a machine as series for graphs.
import { texts } from './texts';

type Values = (number | null)[];

/** The answer of the access API. */
export interface MachineUsage {
  intervalSeconds: number;
  unixMilliseconds: number[];
  cpuPercent: Values;
  memoryPercent: Values;
  diskReadBytesPerSecond: Values;
  diskWrittenBytesPerSecond: Values;
  networkReceivedBytesPerSecond: Values;
  networkTransmittedBytesPerSecond: Values;
}

export interface Graph {
  title: string;
  unit: 'percent' | 'bytes';
  names: string[];
  /** The times in seconds, then the values of each name. */
  data: Values[];
  /** The newest values as text. */
  latest: string;
}

/** The graphs of a usage. A pause of the samples, such as of a machine that was off, is a gap. */
export function graphs(usage: MachineUsage): Graph[] {
  const gap = 3 * usage.intervalSeconds * 1000;
  const make = (title: string, unit: Graph['unit'], series: [string, Values][]): Graph => {
    const data: Values[] = [[], ...series.map(() => [])];
    usage.unixMilliseconds.forEach((at, i) => {
      const before = usage.unixMilliseconds[i - 1];
      if (i > 0 && at - before > gap) [before / 1000 + 1, ...series.map(() => null)].forEach((v, j) => data[j].push(v));
      [at / 1000, ...series.map(([, values]) => values[i] ?? null)].forEach((v, j) => data[j].push(v));
    });
    const format = unit === 'percent' ? percent : bytesPerSecond;
    const latest = series.map(([name, values]) => {
      const value = values.at(-1) ?? null;
      return (series.length > 1 ? `${name} ` : '') + (value === null ? texts.unknown : format(value));
    }).join(', ');
    return { title, unit, names: series.map(([name]) => name), data, latest };
  };
  const { usage: t } = texts;
  return [
    make(t.cpu, 'percent', [[t.cpu, usage.cpuPercent]]),
    make(t.memory, 'percent', [[t.memory, usage.memoryPercent]]),
    make(t.disks, 'bytes', [[t.read, usage.diskReadBytesPerSecond], [t.written, usage.diskWrittenBytesPerSecond]]),
    make(t.network, 'bytes', [[t.received, usage.networkReceivedBytesPerSecond], [t.transmitted, usage.networkTransmittedBytesPerSecond]]),
  ];
}

export function percent(value: number): string {
  return `${Math.round(value)} %`;
}

export function bytesPerSecond(value: number): string {
  let unit = 'B';
  for (const next of ['kB', 'MB', 'GB']) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return `${value < 10 && unit !== 'B' ? value.toFixed(1) : Math.round(value)} ${unit}/s`;
}
