// The graphs of what a machine uses. This file is loaded when the first of them is shown.
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { APIError, getJSON } from './api';
import { failure } from './log';
import { bytesPerSecond, graphs, percent, type Graph, type MachineUsage } from './samples';
import { texts } from './texts';

export default function Usage({ path }: { path: string }) {
  const [usage, set] = useState<MachineUsage>();
  const [message, say] = useState('');
  useEffect(() => {
    let current = true;
    let timer = 0;
    const read = async () => {
      let pause = 15;
      try {
        const answer = await getJSON<MachineUsage>(path);
        if (!current) return;
        set(answer);
        say('');
        pause = answer.intervalSeconds;
      } catch (err) {
        if (current) say(err instanceof APIError ? failure(err) : String(err));
      }
      if (current) timer = setTimeout(read, pause * 1000) as unknown as number;
    };
    void read();
    return () => { current = false; clearTimeout(timer); };
  }, [path]);
  if (!usage) return <p class={message ? 'hint' : ''} role="status">{message || texts.loading}</p>;
  return (
    <>
      {message && <p class="hint" role="status">{message}</p>}
      {!usage.unixMilliseconds.length && <p>{texts.noSamples}</p>}
      {usage.unixMilliseconds.length > 0 && <div class="columns">{graphs(usage).map((g) => <Chart key={g.title} graph={g} />)}</div>}
    </>
  );
}

function Chart({ graph }: { graph: Graph }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const latest = useRef(graph);
  latest.current = graph;
  useEffect(() => {
    const element = place.current!; // the page may be gone when its size changes
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(latest.current, element), latest.current.data as uPlot.AlignedData, element);
    };
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    draw();
    resize.observe(element);
    dark.addEventListener('change', draw);
    return () => {
      resize.disconnect();
      dark.removeEventListener('change', draw);
      plot.current?.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(graph.data as uPlot.AlignedData), [graph]);
  return <figure><figcaption>{graph.title} <span class="count">{graph.latest}</span></figcaption><div ref={place} role="img" aria-label={`${graph.title}: ${graph.latest}`} /></figure>;
}

const height = 150;
/** The length of a graph of a machine that was started just now, in seconds. */
const shortest = 600;

function options(graph: Graph, place: HTMLElement): uPlot.Options {
  const style = getComputedStyle(place);
  // A canvas needs the color that a variable has in the present scheme.
  const color = (name: string) => {
    const probe = document.createElement('span');
    probe.style.color = `var(${name})`;
    place.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  };
  const format = graph.unit === 'percent' ? percent : bytesPerSecond;
  const axis: uPlot.Axis = { stroke: style.color, grid: { stroke: color('--line'), width: 1 }, ticks: { show: false } };
  const time = (at: number) => new Date(at * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });
  return {
    width: place.clientWidth, height, legend: { show: graph.names.length > 1 }, cursor: { y: false },
    scales: { x: { range: ({ data: [times] }) => [Math.min(times[0], times.at(-1)! - shortest), times.at(-1)!] }, y: { range: (_, __, max) => [0, graph.unit === 'percent' ? 100 : Math.max(max * 1.1 || 0, 1024)] } },
    axes: [{ ...axis, values: (_, ticks) => ticks.map(time) }, { ...axis, size: 70, values: (_, ticks) => ticks.map(format) }],
    series: [
      { value: (_, at) => (at ? new Date(at * 1000).toLocaleTimeString('en-GB') : '') },
      ...graph.names.map((label, i): uPlot.Series => ({
        label, stroke: color(i ? '--busy' : '--link'), width: 1.5, spanGaps: false, points: { show: false }, value: (_, v) => (v === null ? '' : format(v)),
      })),
    ],
  };
}
