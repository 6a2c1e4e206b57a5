// An editor for the YAML of an object, with CodeMirror. This file is loaded when the first of them is shown.
import { autocompletion, completionKeymap, startCompletion, type Completion, type CompletionContext, type CompletionResult } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { foldGutter, foldKeymap, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { highlightSelectionMatches, searchKeymap } from '@codemirror/search';
import { Annotation, EditorState, type Text } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers, type Tooltip } from '@codemirror/view';
import { classHighlighter } from '@lezer/highlight';
import { useEffect, useRef } from 'preact/hooks';
import type { Kind } from './kinds';
import { placeOf } from './place';
import { fieldText, rootOf, schemaAt, schemasOf, typeOf, valuesOf, type Schema, type Schemas } from './schema';
import { texts } from './texts';

/** Marks a change that the page made. */
const fromPage = Annotation.define<boolean>();

/**
 * The text is the one to begin with. What is typed goes to change and does not come back: by then, more may have been
 * typed, which would be lost.
 */
export default function Code({ kind, text, change, focus }: { kind: Kind; text: string; change: (text: string) => void; focus?: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const tell = useRef(change);
  tell.current = change;
  useEffect(() => {
    const made = new EditorView({ parent: place.current!, state: EditorState.create({ doc: text, extensions: extensions(kind, (typed) => tell.current(typed)) }) });
    view.current = made;
    made.scrollDOM.tabIndex = 0; // it may be wider than the page
    if (focus) made.focus();
    return () => made.destroy();
  }, [kind]);
  useEffect(() => {
    const { state } = view.current!;
    if (state.doc.toString() !== text) view.current!.dispatch({ changes: { from: 0, to: state.doc.length, insert: text }, annotations: fromPage.of(true) });
  }, [text]);
  return <div ref={place} class="code" />;
}

/** Tab leaves the editor: otherwise the keyboard could not. */
function extensions(kind: Kind, change: (text: string) => void) {
  const { nonce } = document.querySelector<HTMLLinkElement>('link[rel=stylesheet]')!;
  return [
    EditorView.cspNonce.of(nonce), EditorView.contentAttributes.of({ 'aria-label': texts.yaml, spellcheck: 'false' }),
    lineNumbers(), foldGutter(), history(), drawSelection(), indentOnInput(), highlightActiveLine(), highlightSelectionMatches(),
    keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap, ...foldKeymap, ...searchKeymap]), yaml(), syntaxHighlighting(classHighlighter),
    autocompletion({ override: [(context) => complete(kind, context)], icons: false }), hoverTooltip((view, at) => explain(kind, view, at)),
    EditorView.updateListener.of((update) => {
      if (update.docChanged && !update.transactions.some((t) => t.annotation(fromPage))) change(update.state.doc.toString());
    }),
  ];
}

/** Reads the definitions. Without them, the editor has no help; the server checks the object in any case. */
async function definitions(kind: Kind): Promise<{ schemas: Schemas; root: Schema } | undefined> {
  const schemas = await schemasOf(kind).catch(() => ({}));
  const root = rootOf(schemas, kind);
  return root && { schemas, root };
}

const linesOf = (doc: Text) => doc.toString().split('\n');

async function complete(kind: Kind, context: CompletionContext): Promise<CompletionResult | null> {
  const line = context.state.doc.lineAt(context.pos);
  const place = placeOf(linesOf(context.state.doc), line.number - 1);
  const found = place && (await definitions(kind));
  if (!found) return null;
  const { schemas, root } = found;
  const before = line.text.slice(0, context.pos - line.from);
  if (place.key && place.value !== undefined && before.length > place.key.to) {
    const schema = schemaAt(schemas, root, [...place.path, place.key.name]);
    const from = line.from + Math.min(place.value, before.length);
    if (!schema || !/\s$/.test(line.text.slice(0, place.value))) return null;
    return { from, options: valuesOf(schema).map((label, i) => ({ label, boost: -i })), validFor: /^\S*$/ };
  }
  const typed = /^[\w.-]*$/.exec(before.slice(place.indent));
  let schema = schemaAt(schemas, root, place.path);
  if (!typed || !schema || (!typed[0] && !context.explicit && !/^\s*-?\s+$/.test(before))) return null;
  const item = schema.type === 'array' ? '- ' : '';
  if (item) schema = schemaAt(schemas, root, [...place.path, '-'])!;
  return { from: line.from + Math.min(place.indent, before.length), options: fields(schemas, schema, place.indent, place.others, item), validFor: /^[\w.-]*$/ };
}

function fields(schemas: Schemas, object: Schema, indent: number, others: string[], item: string): Completion[] {
  return Object.keys(object.properties ?? {}).filter((name) => name !== 'status' && !others.includes(name)).map((name) => {
    const schema = schemaAt(schemas, object, [name])!;
    const text = item + fieldText(name, schema, indent + item.length);
    return {
      label: name, detail: typeOf(schemas, schema), info: schema.description, boost: object.required?.includes(name) ? 1 : 0,
      apply: (view, _, from, to) => {
        view.dispatch({ changes: { from, to, insert: text }, selection: { anchor: from + text.length }, userEvent: 'input.complete' });
        if (valuesOf(schema).length || text.includes('\n')) startCompletion(view);
      },
    };
  });
}

async function explain(kind: Kind, view: EditorView, at: number): Promise<Tooltip | null> {
  const line = view.state.doc.lineAt(at);
  const place = placeOf(linesOf(view.state.doc), line.number - 1);
  const key = place?.key;
  if (!key || at < line.from + key.from || at > line.from + key.to) return null;
  const found = await definitions(kind);
  const schema = found && schemaAt(found.schemas, found.root, [...place.path, key.name]);
  if (!schema) return null;
  return { pos: line.from + key.from, end: line.from + key.to, above: true, create: () => ({ dom: about(key.name, typeOf(found.schemas, schema), schema) }) };
}

function about(name: string, type: string, schema: Schema): HTMLElement {
  const dom = document.createElement('div');
  dom.className = 'about';
  const title = document.createElement('strong');
  title.textContent = `${name}: ${type}`;
  const usual = schema.default === undefined ? '' : `\n${texts.usual(JSON.stringify(schema.default))}`;
  dom.append(title, (schema.description ?? '') + usual);
  return dom;
}
