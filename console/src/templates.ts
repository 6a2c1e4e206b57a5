// The YAML of new objects.
import type { Kind } from './kinds';

export interface Machine {
  name: string;
  cpu: string;
  memory: string;
  rootDisk: string;
  /** Name of an image, or URL of a disk image with its digest; '' for the default guest. */
  image: string;
  sha256: string;
  /** Public keys that can log in, one a line. */
  sshKeys: string;
}

/** The defaults of keelson vm create. */
export const newMachine: Machine = { name: '', cpu: '1', memory: '512Mi', rootDisk: '', image: '', sha256: '', sshKeys: '' };

/** The root disk of a machine with the default guest: without one it forgets everything when it stops. */
const defaultDisk = '10Gi';

export interface Schedule {
  name: string;
  /** One schedule a line. */
  schedules: string;
  timeZone: string;
  concurrencyPolicy: string;
  image: string;
  command: string;
}

export const newSchedule: Schedule = { name: '', schedules: '0 3 * * *', timeZone: '', concurrencyPolicy: 'Forbid', image: 'busybox', command: 'date' };

/** The words of a command. Quotes keep spaces. */
export function wordsOfCommand(text: string): string[] {
  const found = text.match(/(?:"[^"]*"|'[^']*'|[^\s"']|["'])+/g) ?? [];
  return found.map((word) => word.replace(/"([^"]*)"|'([^']*)'/g, (_, double, single) => double ?? single));
}

/** The lines of a text that are not empty. */
export const linesOf = (text: string) => text.split('\n').map((line) => line.trim()).filter(Boolean);

/** A text as a scalar of YAML. JSON strings are YAML. */
function scalar(text: string): string {
  return /^[A-Za-z0-9][A-Za-z0-9._/-]*$/.test(text) && !/^(true|false|null|yes|no|on|off|y|n|[0-9._-]+(e[0-9]+)?|0x[0-9a-f]+)$/i.test(text) ? text : JSON.stringify(text);
}

function head(kind: Kind, namespace: string, name: string): string {
  const about = [`apiVersion: ${kind.group}/${kind.version}`, `kind: ${kind.kind}`, 'metadata:', `  name: ${scalar(name)}`];
  if (kind.namespaced) about.push(`  namespace: ${scalar(namespace)}`);
  return about.join('\n') + '\n';
}

export function machineYAML(kind: Kind, namespace: string, m: Machine): string {
  let yaml = head(kind, namespace, m.name) + `spec:\n  resource:\n    cpu: ${scalar(m.cpu)}\n    memory: ${scalar(m.memory)}\n`;
  const rootDisk = m.rootDisk || (m.image ? '' : defaultDisk);
  if (rootDisk) yaml += `    rootDisk: ${scalar(rootDisk)}\n`;
  if (m.image && !m.image.includes('/')) yaml += `  image:\n    name: ${scalar(m.image)}\n`;
  else if (m.image) yaml += `  image:\n    url: ${scalar(m.image)}\n    sha256: ${scalar(m.sha256)}\n`;
  const keys = linesOf(m.sshKeys);
  if (keys.length) yaml += `  cloudInit:\n    userData: |\n      #cloud-config\n      ssh_authorized_keys:\n${keys.map((key) => `      - ${JSON.stringify(key)}\n`).join('')}`;
  return yaml;
}

export function scheduleYAML(kind: Kind, namespace: string, s: Schedule): string {
  const lines = linesOf(s.schedules);
  const words = wordsOfCommand(s.command);
  let yaml = head(kind, namespace, s.name.trim()) + 'spec:\n';
  if (lines.length > 1) yaml += `  schedules:\n${lines.map((line) => `  - ${scalar(line)}\n`).join('')}`;
  else if (lines.length) yaml += `  schedule: ${scalar(lines[0])}\n`;
  if (s.timeZone.trim()) yaml += `  timeZone: ${scalar(s.timeZone.trim())}\n`;
  yaml += `  concurrencyPolicy: ${scalar(s.concurrencyPolicy)}\n  jobTemplate:\n    containers:\n    - name: main\n      image: ${scalar(s.image.trim())}\n`;
  if (words.length) yaml += `      command:\n${words.map((word) => `      - ${scalar(word)}\n`).join('')}`;
  return yaml;
}

const specs: Record<string, string> = {
  virtualmachinesets: 'spec:\n  replicas: 2\n  template:\n    spec:\n      resource:\n        cpu: 1\n        memory: 128Mi\n',
  virtualdisks: 'spec:\n  size: 10Gi\n',
  virtualmachinesnapshots: 'spec:\n  virtualMachineName: example\n',
  virtualmachineimages: 'spec:\n  url: https://example.com/image.qcow2\n  sha256: ""\n',
  clusters: 'spec: {}\n',
  clustersnapshots: 'spec:\n  clusterName: example\n',
  foos: 'spec:\n  deploymentName: example\n  replicas: 1\n',
  sampleresources: 'spec:\n  podImage: nginx:latest\n',
};

/** A YAML to begin with; '' for kinds that users do not create here. A Cluster or a machine may be made of a snapshot. */
export function templateOf(kind: Kind, namespace: string, from = ''): string {
  if (from && kind.plural === 'clusters') return head(kind, namespace, 'copy') + `spec:\n  from:\n    snapshot: ${scalar(from)}\n`;
  if (from && kind.plural === 'virtualmachines') return head(kind, namespace, 'copy') + `spec:\n  image:\n    snapshot: ${scalar(from)}\n`;
  const spec = specs[kind.plural];
  return spec === undefined ? '' : head(kind, namespace, 'example') + spec;
}

/** Whether the page of a kind offers to create an object. */
export function canCreate(kind: Kind): boolean {
  return !kind.other && (['virtualmachines', 'crontabs'].includes(kind.plural) || kind.plural in specs);
}
