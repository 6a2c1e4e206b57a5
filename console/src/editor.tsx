// The YAML of an object. It is checked by the server, and shown as a difference, before it is saved.
import { useEffect, useState } from 'preact/hooks';
import { APIError, getText, sendYAML } from './api';
import { diff, type DiffLine } from './diff';
import { path, type Kind } from './kinds';
import { Lazy } from './lazy';
import type { Obj } from './live';
import { useMay } from './may';
import { Copy } from './parts';
import { texts } from './texts';
import { withoutManagedFields } from './yaml';

const asked = ['update'] as const;
const query = 'fieldManager=keelson-console&fieldValidation=Strict';

export function Yaml({ kind, object }: { kind: Kind; object: Obj }) {
  const at = path(kind, object.metadata.namespace, object.metadata.name);
  const [open, setOpen] = useState(false);
  const [text, setText] = useState('');
  const [editing, edit] = useState(false);
  useEffect(() => {
    if (!open || editing) return;
    let current = true;
    getText(at, 'application/yaml').then(
      (yaml) => current && setText(withoutManagedFields(yaml)),
      (err: APIError) => current && setText(err.message),
    );
    return () => { current = false; };
  }, [open, editing, at, object.metadata.resourceVersion]);
  return (
    <details class="card" onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary><h2>{texts.yaml}</h2></summary>
      {open && !editing && <View kind={kind} object={object} text={text} edit={() => edit(true)} />}
      {open && editing && <Editor kind={kind} at={at} before={text} close={() => edit(false)} />}
    </details>
  );
}

function View({ kind, object, text, edit }: { kind: Kind; object: Obj; text: string; edit: () => void }) {
  const may = useMay(kind, object.metadata.namespace, object.metadata.name, asked);
  return (
    <>
      <div class="actions">
        <button type="button" class="small" disabled={kind.update === false || may.update !== '' || !text} title={kind.update === false ? texts.noUpdate : may.update} onClick={edit}>{texts.edit}</button>
        <Copy text={text} />
      </div>
      <pre tabIndex={0} aria-label={texts.yaml}>{text || texts.loading}</pre>
    </>
  );
}

function Editor({ kind, at, before, close }: { kind: Kind; at: string; before: string; close: () => void }) {
  const [text, set] = useState(before);
  const [checked, setChecked] = useState<DiffLine[]>();
  const [message, say] = useState('');
  const put = async (dryRun: boolean): Promise<string | undefined> => {
    say('');
    try {
      return withoutManagedFields(await sendYAML('PUT', `${at}?${query}${dryRun ? '&dryRun=All' : ''}`, text));
    } catch (err) {
      say(err instanceof APIError ? err.message || texts.lostConsole : String(err));
      return undefined;
    }
  };
  const check = async () => {
    const after = await put(true);
    setChecked(after === undefined ? undefined : diff(before, after));
  };
  const save = async () => {
    if ((await put(false)) !== undefined) close();
  };
  return (
    <>
      <Lazy load={() => import('./code')} kind={kind} text={before} focus change={(yaml: string) => { set(yaml); setChecked(undefined); }} />
      {message && <p class="hint" role="alert">{message}</p>}
      {checked && (checked.length ? <pre class="diff" tabIndex={0} aria-label={texts.changes}>{checked.map((l, i) => <span key={i} class={l.kind === '+' ? 'added' : l.kind === '-' ? 'removed' : ''}>{l.kind} {l.text}{'\n'}</span>)}</pre> : <p>{texts.noChanges}</p>)}
      <div class="actions">
        {checked?.length ? <button type="button" onClick={() => void save()}>{texts.save}</button> : <button type="button" onClick={() => void check()}>{texts.check}</button>}
        <button type="button" onClick={close}>{texts.cancel}</button>
      </div>
    </>
  );
}
