// A new object: a form for machines, and YAML for all.
import { useEffect, useState } from 'preact/hooks';
import { APIError, sendYAML } from './api';
import { href, path, title, type Kind } from './kinds';
import { Lazy } from './lazy';
import { router } from './route';
import { machineYAML, newMachine, templateOf, type Machine } from './templates';
import { texts } from './texts';

const fields: { name: keyof Machine; pattern?: string; required?: boolean }[] = [
  { name: 'name', required: true }, { name: 'cpu', required: true }, { name: 'memory', required: true }, { name: 'rootDisk' }, { name: 'image' }, { name: 'sha256' },
];

export function CreatePage({ kind }: { kind: Kind }) {
  const namespace = router.filter || 'default';
  const [machine, setMachine] = useState(newMachine);
  const [edited, setEdited] = useState<string>();
  const [message, say] = useState('');
  const [checked, setChecked] = useState(false);
  const form = kind.plural === 'virtualmachines';
  useEffect(() => { document.title = `${texts.create} · ${title(kind)} · ${texts.product}`; }, [kind]);
  // Not in an effect, which comes after the next click.
  const made = form ? machineYAML(kind, namespace, machine) : templateOf(kind, namespace);
  const text = edited ?? made;
  const change = (yaml?: string) => { setEdited(yaml); setChecked(false); };
  useEffect(() => change(), [kind, namespace]);
  const post = async (dryRun: boolean) => {
    say('');
    const query = `fieldManager=keelson-console&fieldValidation=Strict${dryRun ? '&dryRun=All' : ''}`;
    try {
      const yaml = await sendYAML('POST', `${path(kind, kind.namespaced ? namespace : '')}?${query}`, text);
      if (dryRun) return setChecked(true);
      const name = /^  name: (.*)$/m.exec(yaml)?.[1] ?? '';
      router.go(href(kind, namespace, name.replace(/^["'](.*)["']$/, '$1')));
    } catch (err) {
      say(err instanceof APIError ? err.message || texts.lostConsole : String(err));
    }
  };
  return (
    <>
      <p class="crumbs"><a href={href(kind, kind.namespaced ? router.filter : '')}>{title(kind)}</a></p>
      <h1>{texts.create}</h1>
      {form && (
        <section class="card form">
          {fields.map(({ name, required }) => (
            <label key={name}>{texts.fields[name]}{required && ' *'}
              <input name={name} value={machine[name]} spellcheck={false} autocomplete="off" onInput={(e) => { setMachine({ ...machine, [name]: e.currentTarget.value.trim() }); change(); }} />
              <span class="help">{texts.fieldHelp[name]}</span>
            </label>
          ))}
        </section>
      )}
      <section class="card">
        <h2>{texts.yaml}</h2>
        <Lazy load={() => import('./code')} kind={kind} text={made} change={change} />
        {message && <p class="hint" role="alert">{message}</p>}
        {checked && <p role="status">{texts.accepted}</p>}
        <div class="actions">
          <button type="button" onClick={() => void post(false)}>{texts.create}</button>
          <button type="button" onClick={() => void post(true)}>{texts.check}</button>
        </div>
      </section>
    </>
  );
}
