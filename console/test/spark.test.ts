import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MachineUsage } from '../src/samples';
import { lineOf, Usages } from '../src/spark';

const usage = (times: number[], cpuPercent: (number | null)[]) => ({ intervalSeconds: 15, unixMilliseconds: times, cpuPercent }) as MachineUsage;

// The sources of the page tell their listeners in frames.
(globalThis as any).requestAnimationFrame = (act: () => void) => setTimeout(act, 0);

test('the line of a graph has a gap where values are missing, and where the machine was off', () => {
  assert.equal(lineOf({ ...usage([0, 300_000, 600_000], [0, 50, 100]), intervalSeconds: 300 }, 100, 20), 'M0.0 20.0h0L50.0 10.0L100.0 0.0');
  assert.equal(lineOf({ ...usage([0, 300_000, 600_000], [0, null, 200]), intervalSeconds: 300 }, 100, 20), 'M0.0 20.0h0M100.0 0.0h0');
  assert.equal(lineOf(usage([0, 600_000], [0, 0]), 100, 20), 'M0.0 20.0h0M100.0 20.0h0');
  assert.equal(lineOf(usage([5], [100]), 100, 20), 'M100.0 0.0h0');
});

test('usages are read of what is shown, a few at a time, and again after a while', async () => {
  let now = 0;
  const asked: string[] = [];
  const answer: (() => void)[] = [];
  const usages = new Usages((at) => { asked.push(at); return new Promise((resolve) => answer.push(() => resolve(usage([0], [1])))); }, () => now);
  const settle = async () => { while (answer.length) { answer.shift()!(); await new Promise((r) => setTimeout(r)); } };
  const hide = ['a', 'b', 'c', 'd', 'e', 'f'].map((at) => usages.show(at));
  assert.deepEqual(asked, ['a', 'b', 'c', 'd']);
  hide[4](); // e has left before its turn
  await settle();
  assert.deepEqual(asked, ['a', 'b', 'c', 'd', 'f']);
  assert.equal(usages.of('a')?.cpuPercent[0], 1);
  now = 14_000;
  usages.refreshAll();
  assert.equal(asked.length, 5);
  now = 16_000; // few samples: soon again
  hide.forEach((h, i) => i > 0 && i !== 4 && h());
  usages.refreshAll();
  await settle();
  assert.deepEqual(asked.slice(5), ['a']);
});
