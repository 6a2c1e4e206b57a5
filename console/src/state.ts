// What the columns Ready and Reason mean for a user.

/** Reasons of an operation that ends by itself. */
const progress = new Set([
  'Creating', 'Starting', 'Stopping', 'FallingAsleep', 'GuestBooting', 'Terminating', 'Progressing', 'PodStarting', 'PodTerminating',
  'Provisioning', 'Updating', 'Waiting', 'Removing', 'NotProbed', 'NoKubeconfig', 'Importing', 'Growing', 'Probing',
]);

/** Reasons of what is at rest, because somebody has asked for it. Ready is True then. */
const requested = new Set(['Stopped', 'GuestStopped', 'Paused', 'Asleep', 'Suspended', 'Ended']);

export type State = 'ready' | 'progress' | 'requested' | 'wrong' | 'none';

export function stateOf(ready: string, reason: string): State {
  if (ready === 'True') return requested.has(reason) ? 'requested' : 'ready';
  if (progress.has(reason)) return 'progress';
  if (ready === '' && reason === '') return 'none';
  return 'wrong';
}

export type Tone = 'good' | 'bad' | 'busy' | 'calm' | 'plain';

export const toneOf: Record<State, Tone> = { ready: 'good', progress: 'busy', requested: 'calm', wrong: 'bad', none: 'busy' };

const words: Record<string, Tone> = {
  Running: 'good', Active: 'good', Provisioned: 'good', Succeeded: 'good', Complete: 'good', True: 'good',
  Failed: 'bad', Unschedulable: 'bad', Unknown: 'bad', False: 'bad',
  Creating: 'busy', Booting: 'busy', Stopping: 'busy', Terminating: 'busy', Pending: 'busy', Provisioning: 'busy', Deleting: 'busy',
  Stopped: 'calm', Paused: 'calm', Asleep: 'calm', Suspended: 'calm',
};

/** The tone of a word in one of the columns that have a state. */
export function toneOfCell(column: string, text: string): Tone {
  return ['Status', 'Phase', 'Ready', 'Last Result', 'Provisioned'].includes(column) ? (words[text] ?? 'plain') : 'plain';
}
