// Where in an object a place of its YAML is. It reads lines and their indentation, because a YAML that is being typed is
// not valid most of the time. Flow style, { } and [ ], is not read.

export interface Place {
  /** The fields that enclose it; '-' is an item of a list. */
  path: string[];
  /** Where the line has its field, or would have it. */
  indent: number;
  /** The field of the line, and where it is in the line. */
  key?: { name: string; from: number; to: number };
  /** Where the value of the line begins. */
  value?: number;
  /** The other fields of the same object. */
  others: string[];
}

interface Line {
  dashes: number[];
  indent: number;
  name?: string;
  to: number;
  value?: number;
  rest: string;
}

const field = /^("(?:[^"\\]|\\.)*"|'[^']*'|[^\s#"'[\]{},:-][^:#]*?|-[^\s:#][^:#]*?)\s*:(?=\s|$)/;

function lineOf(text: string): Line {
  const dashes: number[] = [];
  let at = text.length - text.trimStart().length;
  for (let m = /^-(\s+|$)/.exec(text.slice(at)); m; m = /^-(\s+|$)/.exec(text.slice(at))) {
    dashes.push(at);
    at += m[0].length;
  }
  const rest = text.slice(at);
  const found = field.exec(rest);
  if (!found) return { dashes, indent: at, to: at, rest };
  const colon = at + found[0].length;
  const value = text.slice(colon);
  return { dashes, indent: at, name: found[1].replace(/^(["'])(.*)\1$/, '$2'), to: at + found[1].length, value: colon + value.length - value.trimStart().length, rest };
}

const isEmpty = (text: string) => /^\s*(#.*)?$/.test(text) || text === '---';
const beginsText = (line: Line) => /[|>][-+0-9]*\s*(#.*)?$/.test(line.rest);

/** Returns the place of a line; undefined within a text of several lines. */
export function placeOf(lines: string[], number: number): Place | undefined {
  const line = lineOf(lines[number]);
  const path: string[] = [];
  // A field belongs to one further left; an item of a list may be as far left as the field of its list.
  let left = line.indent;
  let leftItem = line.indent;
  const climb = (dashes: number[]) => {
    for (const dash of [...dashes].reverse()) {
      if (dash >= leftItem) continue;
      path.unshift('-');
      [left, leftItem] = [dash + 1, dash];
    }
  };
  climb(line.dashes);
  for (let i = number - 1; i >= 0 && left > 0; i--) {
    if (isEmpty(lines[i])) continue;
    const above = lineOf(lines[i]);
    if (above.name !== undefined && above.indent < left) {
      if (beginsText(above)) return undefined;
      path.unshift(above.name);
      [left, leftItem] = [above.indent, above.indent];
    }
    climb(above.dashes);
  }
  const key = line.name === undefined ? undefined : { name: line.name, from: line.indent, to: line.to };
  return { path, indent: line.indent, key, value: line.value, others: othersOf(lines, number, line) };
}

function othersOf(lines: string[], number: number, line: Line): string[] {
  const found = new Set<string>();
  const isOther = (other: Line) => other.indent === line.indent && other.name !== undefined && found.add(other.name);
  for (let i = number - 1; i >= 0 && !line.dashes.length; i--) {
    if (isEmpty(lines[i])) continue;
    const above = lineOf(lines[i]);
    isOther(above);
    if ((above.dashes[0] ?? above.indent) < line.indent) break; // where the object begins
  }
  for (let i = number + 1; i < lines.length; i++) {
    if (isEmpty(lines[i])) continue;
    const below = lineOf(lines[i]);
    if ((below.dashes[0] ?? below.indent) < line.indent) break;
    isOther(below);
  }
  return [...found];
}
