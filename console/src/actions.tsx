// The buttons of an object, and what they ask before.
import { useState } from 'preact/hooks';
import { APIError, send } from './api';
import { change } from './change';
import { href, own, path, type Kind } from './kinds';
import type { Obj } from './live';
import { useMay } from './may';
import { Cancel, Dialog } from './parts';
import { BackfillForm, RunForm } from './requests';
import { router } from './route';
import { texts } from './texts';
import { verbsOf, type Verb } from './verbs';

const asked = ['patch', 'delete'] as const;

export function Actions({ kind, object }: { kind: Kind; object: Obj }) {
  const { name, namespace, uid } = object.metadata;
  const may = useMay(kind, namespace, name, asked);
  const [question, ask] = useState<Verb | 'delete'>();
  const [message, say] = useState('');
  const close = () => ask(undefined);
  const act = async (verb: Verb) => {
    say('');
    say(await change(kind, object, verb.patch));
    close();
  };
  const remove = async () => {
    say('');
    try {
      // Not an object with the same name that was created since.
      await send('DELETE', path(kind, namespace, name), { preconditions: { uid } });
      router.go(href(kind, router.filter));
    } catch (err) {
      say(err instanceof APIError ? err.message || texts.lostConsole : String(err));
    }
    close();
  };
  const denied = (verb: string) => may[verb] ?? texts.loading;
  return (
    <div class="actions">
      {verbsOf(own(kind), object, new Date()).map((v) => (
        <button key={v.name} type="button" disabled={denied('patch') !== ''} title={denied('patch')} onClick={() => (v.warning || v.form ? ask(v) : void act(v))}>{v.label}</button>
      ))}
      {!object.metadata.deletionTimestamp && (
        <button type="button" class="danger" disabled={denied('delete') !== ''} title={denied('delete')} onClick={() => ask('delete')}>{texts.verbs.delete}</button>
      )}
      {message && <p class="hint" role="alert">{message}</p>}
      {question === 'delete' && <Confirm title={texts.deleteTitle(name)} text={texts.deleteWarning} label={texts.verbs.deleteNow} typed={name} act={() => void remove()} close={close} />}
      {question && question !== 'delete' && !question.form && <Confirm title={question.label} text={question.warning ?? ''} label={question.label} act={() => void act(question)} close={close} />}
      {question && question !== 'delete' && question.form === 'run' && <RunForm kind={kind} object={object} close={close} />}
      {question && question !== 'delete' && question.form === 'backfill' && <BackfillForm kind={kind} object={object} close={close} />}
    </div>
  );
}

/** Asks before something is done; typed is what has to be typed. */
function Confirm({ title, text, label, typed, act, close }: { title: string; text: string; label: string; typed?: string; act: () => void; close: () => void }) {
  const [input, set] = useState('');
  const ready = typed === undefined || input === typed;
  return (
    <Dialog title={title} close={close}>
      <p>{text}</p>
      {typed !== undefined && (
        <label class="typed">{texts.typeName} <code>{typed}</code>
          <input value={input} autofocus spellcheck={false} autocomplete="off" onInput={(e) => set(e.currentTarget.value)} onKeyDown={(e) => e.key === 'Enter' && ready && act()} />
        </label>
      )}
      <div class="actions">
        <button type="button" class={typed === undefined ? '' : 'danger'} disabled={!ready} onClick={act}>{label}</button>
        <Cancel />
      </div>
    </Dialog>
  );
}
