import assert from 'node:assert/strict';
import { test } from 'node:test';
import { placeOf } from '../src/place';
import { fieldText, rootOf, schemaAt, typeOf, valuesOf, type Schemas } from '../src/schema';

const yaml = `apiVersion: v1
kind: Thing
metadata:
  name: a # why
spec:
  jobTemplate:
    containers:
    - name: main
      args: [a: 1]
      env:
      - name: X
        value: "y: z"
    -
  script: |
    if: x

  "quoted key": 1
  other:
    - - deep: 1
`.split('\n');

const at = (text: string, nth = 0) => {
  const number = yaml.flatMap((l, i) => (l.includes(text) ? [i] : []))[nth];
  const place = placeOf(yaml, number);
  return place && [...place.path, place.key?.name ?? '?'].join(' ');
};

test('the place of a line is told by indentation', () => {
  assert.equal(at('apiVersion'), 'apiVersion');
  assert.equal(at('name: a'), 'metadata name');
  assert.equal(at('containers'), 'spec jobTemplate containers');
  assert.equal(at('- name: main'), 'spec jobTemplate containers - name');
  assert.equal(at('args'), 'spec jobTemplate containers - args');
  assert.equal(at('- name: X'), 'spec jobTemplate containers - env - name');
  assert.equal(at('value'), 'spec jobTemplate containers - env - value');
  assert.equal(at('    -', 2), 'spec jobTemplate containers - ?');
  assert.equal(at('if: x'), undefined);
  assert.equal(at('quoted'), 'spec quoted key');
  assert.equal(at('deep'), 'spec other - - deep');
});

test('the other fields of an object are those of the same item', () => {
  assert.deepEqual(placeOf(yaml, 7)!.others, ['args', 'env']);
  assert.deepEqual(placeOf(yaml, 9)!.others, ['args', 'name']);
  assert.deepEqual(placeOf(yaml, 1)!.others, ['apiVersion', 'metadata', 'spec']);
  assert.deepEqual(placeOf(['a: 1', 'b:', ''], 2), { path: [], indent: 0, key: undefined, value: undefined, others: ['b', 'a'] });
  assert.deepEqual(placeOf(['b:', '  '], 1)!.path, ['b']);
});

const schemas: Schemas = {
  Meta: { type: 'object', properties: { name: { type: 'string' }, labels: { type: 'object', additionalProperties: { type: 'string' } } } },
  Thing: {
    type: 'object', 'x-kubernetes-group-version-kind': [{ group: 'g', version: 'v1', kind: 'Thing' }],
    properties: {
      metadata: { description: 'About it', allOf: [{ $ref: '#/components/schemas/Meta' }] },
      spec: { type: 'object', properties: { on: { type: 'boolean', default: true }, mode: { enum: ['a', 'b'], default: 'b' }, list: { type: 'array', items: { type: 'object', properties: { x: { 'x-kubernetes-int-or-string': true } } } } } },
    },
  },
};

test('the schema of a place', () => {
  const root = rootOf(schemas, { group: 'g', version: 'v1', kind: 'Thing', plural: 'things', namespaced: true })!;
  const of = (...path: string[]) => schemaAt(schemas, root, path);
  assert.equal(of('metadata')?.description, 'About it');
  assert.equal(of('metadata', 'labels', 'any')?.type, 'string');
  assert.equal(of('spec', 'list', 'x'), undefined);
  assert.equal(typeOf(schemas, of('spec', 'list', '-', 'x')!), 'integer or string');
  assert.deepEqual([typeOf(schemas, of('spec', 'list')!), typeOf(schemas, of('metadata', 'labels')!)], ['list of object', 'map']);
  assert.deepEqual([valuesOf(of('spec', 'on')!), valuesOf(of('spec', 'mode')!)], [['true', 'false'], ['b', 'a']]);
  assert.deepEqual([fieldText('list', of('spec', 'list')!, 2), fieldText('spec', of('spec')!, 0), fieldText('on', of('spec', 'on')!, 2)], ['list:\n  - ', 'spec:\n  ', 'on: ']);
});
