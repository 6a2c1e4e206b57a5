// The buttons of an object, and what they ask before.
import { useEffect, useRef, useState } from 'preact/hooks';
import { APIError, send } from './api';
import { href, own, path, type Kind } from './kinds';
import type { Obj } from './live';
import { useMay } from './may';
import { router } from './route';
import { texts } from './texts';
import { verbsOf, type Verb } from './verbs';

const manager = 'fieldManager=keelson-console';
const asked = ['patch', 'delete'] as const;

export function Actions({ kind, object }: { kind: Kind; object: Obj }) {
  const { name, namespace, uid } = object.metadata;
  const may = useMay(kind, namespace, name, asked);
  const [question, ask] = useState<Verb | 'delete'>();
  const [message, say] = useState('');
  const at = path(kind, namespace, name);
  const run = async (request: () => Promise<unknown>, done: () => void) => {
    say('');
    try {
      await request();
      done();
    } catch (err) {
      say(err instanceof APIError ? err.message || texts.lostConsole : String(err));
    }
    ask(undefined);
  };
  const act = (verb: Verb) => run(() => send('PATCH', `${at}?${manager}`, verb.patch, 'application/merge-patch+json'), () => {});
  // Not an object with the same name that was created since.
  const remove = () => run(() => send('DELETE', at, { preconditions: { uid } }), () => router.go(href(kind, router.filter)));
  const denied = (verb: string) => may[verb] ?? texts.loading;
  return (
    <div class="actions">
      {verbsOf(own(kind), object, new Date()).map((v) => (
        <button key={v.name} type="button" disabled={denied('patch') !== ''} title={denied('patch')} onClick={() => (v.warning ? ask(v) : void act(v))}>{v.label}</button>
      ))}
      {!object.metadata.deletionTimestamp && (
        <button type="button" class="danger" disabled={denied('delete') !== ''} title={denied('delete')} onClick={() => ask('delete')}>{texts.verbs.delete}</button>
      )}
      {message && <p class="hint" role="alert">{message}</p>}
      {question === 'delete' && <Confirm title={texts.deleteTitle(name)} text={texts.deleteWarning} label={texts.verbs.deleteNow} typed={name} act={() => void remove()} close={() => ask(undefined)} />}
      {question && question !== 'delete' && <Confirm title={question.label} text={question.warning ?? ''} label={question.label} act={() => void act(question)} close={() => ask(undefined)} />}
    </div>
  );
}

/** Asks before something is done; typed is what has to be typed. */
function Confirm({ title, text, label, typed, act, close }: { title: string; text: string; label: string; typed?: string; act: () => void; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [input, set] = useState('');
  useEffect(() => dialog.current?.showModal(), []);
  const ready = typed === undefined || input === typed;
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="confirm-title">
      <h2 id="confirm-title">{title}</h2>
      <p>{text}</p>
      {typed !== undefined && (
        <label class="typed">{texts.typeName} <code>{typed}</code>
          <input value={input} autofocus spellcheck={false} autocomplete="off" onInput={(e) => set(e.currentTarget.value)} onKeyDown={(e) => e.key === 'Enter' && ready && act()} />
        </label>
      )}
      <div class="actions">
        <button type="button" class={typed === undefined ? '' : 'danger'} disabled={!ready} onClick={act}>{label}</button>
        <button type="button" onClick={() => dialog.current?.close()}>{texts.cancel}</button>
      </div>
    </dialog>
  );
}
