// Writes the results of two independent libraries for schedules.txt, around every clock change of ten
// zones in thirty years and at ordinary times: internal/cron/testdata/oracles.txt.gz. The tests of
// internal/cron read it; docs/internals/schedules.md explains where Keelson differs, and why.
// Run it as `make cronvectors`; it takes minutes.
//
// Format, one JSON object and then lines:
//   {"versions": ..., "runs": n, "zones": [{name, offset, changes, starts}], "schedules": [...]}
//   a line for each schedule and zone, schedules first: for each start of the zone the n runs that
//   follow it, separated by spaces.
// Runs are separated by commas. Each is the seconds since the one before, in base 36, and the first
// the seconds since the midnight in UTC before the start; "-" is the end, if there are fewer than n.
// Equal results of both libraries are written once, different ones as croner "|" cron-parser. "!" is a
// schedule that a library rejects.
//
// The changes of each zone are those that the libraries used, so that the tests need no other zone
// database. The file is rewritten only if its content changes: other versions of Node compress
// differently.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { Worker, isMainThread, parentPort } from 'node:worker_threads';
import { gunzipSync, gzipSync } from 'node:zlib';
import { croner, cronParser } from './libraries.js';
import { zoneNames, zoneOf } from './zones.js';

const runs = 3;
const day = 86400;
const file = new URL('../../internal/cron/testdata/oracles.txt.gz', import.meta.url);

const here = (name) => new URL(name, import.meta.url);
const versionOf = (name) => JSON.parse(readFileSync(here(`node_modules/${name}/package.json`))).version;
const schedules = readFileSync(here('schedules.txt'), 'utf8').split('\n').filter((line) => line && !line.startsWith('#'));

function attempt(library, schedule, zone) {
  try {
    return library(schedule, zone);
  } catch {
    return null;
  }
}

function encode(next, start) {
  if (!next) return '!';
  const found = next(start, runs);
  const words = found.map((run, i) => (run - (i ? found[i - 1] : start - start % day)).toString(36));
  if (found.length < runs) words.push('-');
  return words.join(',');
}

// linesOf returns a line for each schedule.
function linesOf(zone) {
  return schedules.map((schedule) => {
    const a = attempt(croner, schedule, zone.name);
    const b = attempt(cronParser, schedule, zone.name);
    return zone.starts.map((start) => {
      const one = encode(a, start);
      const two = encode(b, start);
      return one === two ? one : `${one}|${two}`;
    }).join(' ');
  });
}

// inWorkers processes the zones in one thread per processor.
async function inWorkers() {
  const results = new Map();
  const waiting = [...zoneNames];
  const work = () => new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url));
    const hand = () => (waiting.length ? worker.postMessage(waiting.shift()) : worker.terminate().then(resolve));
    worker.on('error', reject);
    worker.on('message', (result) => {
      console.log(`${result.zone.name}: ${result.zone.changes.length} changes, ${result.zone.starts.length} starts`);
      results.set(result.zone.name, result);
      hand();
    });
    hand();
  });
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), zoneNames.length) }, work));
  return zoneNames.map((name) => results.get(name));
}

async function main() {
  const results = await inWorkers();
  const versions = { croner: versionOf('croner'), 'cron-parser': versionOf('cron-parser'), tz: process.versions.tz };
  const header = { versions, runs, zones: results.map(({ zone }) => zone), schedules };
  const lines = schedules.flatMap((_, i) => results.map((result) => result.lines[i]));
  const content = `${[JSON.stringify(header), ...lines].join('\n')}\n`;
  const before = existsSync(file) ? gunzipSync(readFileSync(file)).toString() : '';
  if (content === before) {
    console.log('The file is up to date.');
    return;
  }
  const was = before && JSON.parse(before.slice(0, before.indexOf('\n'))).versions;
  if (was && was.tz !== versions.tz) {
    console.log(`The time zones were those of ${was.tz}, and are now those of ${versions.tz}.`);
  }
  writeFileSync(file, gzipSync(content, { level: 9 }));
  console.log(`The file is new: ${schedules.length} schedules, ${zoneNames.length} zones, `
    + `${results.reduce((n, { zone }) => n + zone.starts.length, 0)} starts.`);
}

if (isMainThread) {
  await main();
} else {
  parentPort.on('message', (name) => {
    const zone = zoneOf(name);
    parentPort.postMessage({ zone, lines: linesOf(zone) });
  });
}
