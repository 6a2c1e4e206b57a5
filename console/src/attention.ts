// What of all objects a user should look at.
import type { Kind } from './kinds';
import type { Obj, TableList } from './live';
import { stateOf, type State } from './state';
import type { Row } from './table';

export interface Group {
  kind: Kind;
  reason: string;
  state: State;
  rows: Row[];
}

/** The objects that are not ready by kind, state and reason; the largest groups first. */
export function groups(lists: { kind: Kind; list: Pick<TableList, 'rows' | 'cell'> }[]): Group[] {
  const found = new Map<string, Group>();
  for (const { kind, list } of lists) {
    for (const row of list.rows.values()) {
      const reason = list.cell(row, 'Reason');
      const state = row.deleting ? 'progress' : stateOf(list.cell(row, 'Ready'), reason);
      if (state === 'ready') continue;
      const key = [kind.plural, state, reason].join('/');
      const group = found.get(key) ?? { kind, reason, state, rows: [] };
      group.rows.push(row);
      found.set(key, group);
    }
  }
  return [...found.values()].sort((a, b) => b.rows.length - a.rows.length || a.reason.localeCompare(b.reason));
}

/** The message of the condition with a reason, Ready first: the summary of an object may have its reason from another one. */
export function messageOf(object: Obj, reason: string): string {
  const conditions: any[] = object.status?.conditions ?? [];
  const ready = conditions.find((c) => c.type === 'Ready');
  const found = ready?.reason === reason ? ready : conditions.find((c) => c.reason === reason);
  return found?.message ?? object.status?.message ?? ready?.message ?? '';
}

export interface Run {
  row: Row;
  at: number;
  schedule: string;
}

/** The coming runs, the next one first. */
export function nextRuns(list: Pick<TableList, 'rows' | 'cell'>): Run[] {
  const runs: Run[] = [];
  for (const row of list.rows.values()) {
    const at = Date.parse(list.cell(row, 'Next'));
    if (!Number.isNaN(at)) runs.push({ row, at, schedule: list.cell(row, 'Schedule') });
  }
  return runs.sort((a, b) => a.at - b.at);
}
