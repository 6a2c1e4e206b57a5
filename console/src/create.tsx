// A new object: a form for machines and schedules, and YAML for all.
import { useEffect, useState } from 'preact/hooks';
import { APIError, sendYAML } from './api';
import { MachineForm, ScheduleForm } from './forms';
import { href, path, title, type Kind } from './kinds';
import { Lazy } from './lazy';
import { router } from './route';
import { machineYAML, newMachine, newSchedule, scheduleYAML, templateOf } from './templates';
import { texts } from './texts';

function yamlOf(kind: Kind, namespace: string, machine: typeof newMachine, schedule: typeof newSchedule): string {
  if (kind.plural === 'virtualmachines' && !router.route.from) return machineYAML(kind, namespace, machine);
  return kind.plural === 'crontabs' ? scheduleYAML(kind, namespace, schedule) : templateOf(kind, namespace, router.route.from);
}

export function CreatePage({ kind, sshKey }: { kind: Kind; sshKey?: string }) {
  const namespace = router.filter || 'default';
  const [machine, setMachine] = useState({ ...newMachine, sshKeys: sshKey ?? '' });
  const [schedule, setSchedule] = useState(newSchedule);
  const [edited, setEdited] = useState<string>();
  const [message, say] = useState('');
  const [checked, setChecked] = useState(false);
  useEffect(() => { document.title = `${texts.create} · ${title(kind)} · ${texts.product}`; }, [kind]);
  // Not in an effect, which comes after the next click.
  const made = yamlOf(kind, namespace, machine, schedule);
  const text = edited ?? made;
  const change = (yaml?: string) => { setEdited(yaml); setChecked(false); };
  useEffect(() => change(), [kind, namespace, router.route.from]);
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
      {kind.plural === 'virtualmachines' && !router.route.from && <MachineForm machine={machine} set={(changed) => { setMachine(changed); change(); }} />}
      {kind.plural === 'crontabs' && <ScheduleForm schedule={schedule} set={(changed) => { setSchedule(changed); change(); }} />}
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
