// The definitions of the API, as its OpenAPI has them, and where in them a place of a YAML is.
import { getJSON } from './api';
import type { Kind } from './kinds';

/** The parts of a schema that the editor uses. */
export interface Schema {
  type?: string;
  format?: string;
  description?: string;
  enum?: unknown[];
  default?: unknown;
  required?: string[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  allOf?: Schema[];
  $ref?: string;
  'x-kubernetes-int-or-string'?: boolean;
  'x-kubernetes-group-version-kind'?: { group: string; version: string; kind: string }[];
}

export type Schemas = Record<string, Schema>;

const read = new Map<string, Promise<Schemas>>();

/** Reads the definitions of a group once. */
export function schemasOf({ group, version }: Kind): Promise<Schemas> {
  const path = group ? `/openapi/v3/apis/${group}/${version}` : `/openapi/v3/api/${version}`;
  let found = read.get(path);
  if (!found) {
    found = getJSON<{ components: { schemas: Schemas } }>(path).then((d) => d.components.schemas);
    found.catch(() => read.delete(path));
    read.set(path, found);
  }
  return found;
}

export function rootOf(schemas: Schemas, kind: Kind): Schema | undefined {
  return Object.values(schemas).find((s) => s['x-kubernetes-group-version-kind']?.some((k) => k.group === kind.group && k.version === kind.version && k.kind === kind.kind));
}

/** Follows references. What stands beside one, such as a description, has precedence. */
function whole(schemas: Schemas, schema: Schema): Schema {
  const refers = schema.$ref ?? schema.allOf?.[0]?.$ref;
  const target = refers && schemas[refers.slice(refers.lastIndexOf('/') + 1)];
  return target ? { ...whole(schemas, target), ...schema, allOf: undefined, $ref: undefined } : schema;
}

/** The schema at a path of fields; '-' is an item of a list. */
export function schemaAt(schemas: Schemas, root: Schema, path: string[]): Schema | undefined {
  let at: Schema | undefined = whole(schemas, root);
  for (const step of path) {
    const any: Schema | undefined = typeof at.additionalProperties === 'object' ? at.additionalProperties : undefined;
    const next: Schema | undefined = step === '-' ? at.items : (at.properties?.[step] ?? any);
    if (!next) return undefined;
    at = whole(schemas, next);
  }
  return at;
}

/** Such as string, integer, or list of object. */
export function typeOf(schemas: Schemas, schema: Schema): string {
  if (schema['x-kubernetes-int-or-string']) return 'integer or string';
  if (schema.type === 'array') return `list of ${schema.items ? typeOf(schemas, whole(schemas, schema.items)) : 'values'}`;
  if (schema.type === 'object' && schema.additionalProperties) return 'map';
  return schema.format ? `${schema.type} (${schema.format})` : (schema.type ?? 'any');
}

/** The values that a field is known to accept. */
export function valuesOf(schema: Schema): string[] {
  const known = schema.enum ?? (schema.type === 'boolean' ? [true, false] : []);
  const all = known.map(String);
  const usual = schema.default === undefined || typeof schema.default === 'object' ? [] : [String(schema.default)];
  return [...new Set([...usual, ...all])];
}

/** What is inserted for a field, and the line after it. */
export function fieldText(name: string, schema: Schema, indent: number): string {
  if (schema.type === 'array') return `${name}:\n${' '.repeat(indent)}- `;
  if (schema.type === 'object' && (schema.properties || schema.additionalProperties)) return `${name}:\n${' '.repeat(indent + 2)}`;
  return `${name}: `;
}
