export interface DiffLine {
  kind: ' ' | '+' | '-';
  text: string;
}

/** The difference between two texts by lines, as the longest common subsequence gives it, with some lines around each change. */
export function diff(before: string, after: string, around = 3): DiffLine[] {
  const a = before.split('\n');
  const b = after.split('\n');
  const length = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const all: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      all.push({ kind: ' ', text: a[i++] });
      j++;
    } else if (i < a.length && (j === b.length || length[i + 1][j] >= length[i][j + 1])) all.push({ kind: '-', text: a[i++] });
    else all.push({ kind: '+', text: b[j++] });
  }
  const near = (at: number) => all.slice(Math.max(0, at - around), at + around + 1).some((l) => l.kind !== ' ');
  return all.filter((_, at) => near(at));
}
