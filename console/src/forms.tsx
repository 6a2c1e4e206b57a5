// The forms for new objects. Each changes what the YAML is created from.
import { Explain } from './explain';
import { ZoneField } from './schedule';
import { linesOf, type Machine, type Schedule } from './templates';
import { texts } from './texts';

const machineFields: { name: keyof Machine; required?: boolean }[] = [
  { name: 'name', required: true }, { name: 'cpu', required: true }, { name: 'memory', required: true }, { name: 'rootDisk' }, { name: 'image' }, { name: 'sha256' },
];

export function MachineForm({ machine, set }: { machine: Machine; set: (machine: Machine) => void }) {
  return (
    <section class="card form">
      {machineFields.map(({ name, required }) => (
        <label key={name}>{texts.fields[name]}{required && ' *'}
          <input name={name} value={machine[name]} spellcheck={false} autocomplete="off" onInput={(e) => set({ ...machine, [name]: e.currentTarget.value.trim() })} />
          <span class="help">{texts.fieldHelp[name]}</span>
        </label>
      ))}
      <label>{texts.fields.sshKeys}
        <textarea name="sshKeys" value={machine.sshKeys} rows={2} spellcheck={false} onInput={(e) => set({ ...machine, sshKeys: e.currentTarget.value })} />
        <span class="help">{texts.fieldHelp.sshKeys}</span>
      </label>
    </section>
  );
}

const policies = ['Forbid', 'Allow', 'Replace', 'Queue'];

export function ScheduleForm({ schedule, set }: { schedule: Schedule; set: (schedule: Schedule) => void }) {
  const change = (name: keyof Schedule) => (e: { currentTarget: { value: string } }) => set({ ...schedule, [name]: e.currentTarget.value });
  const lines = linesOf(schedule.schedules);
  const times = lines.length > 1 ? { schedules: lines } : { schedule: lines[0] };
  const input = (name: 'name' | 'command', required?: boolean) => (
    <label>{texts.fields[name]}{required && ' *'}
      <input name={name} value={schedule[name]} spellcheck={false} autocomplete="off" onInput={change(name)} />
      <span class="help">{texts.fieldHelp[name]}</span>
    </label>
  );
  return (
    <>
      <section class="card form">
        {input('name', true)}
        <label>{texts.fields.schedules} *
          <textarea name="schedules" value={schedule.schedules} rows={2} spellcheck={false} onInput={change('schedules')} />
          <span class="help">{texts.fieldHelp.schedules}</span>
        </label>
        <ZoneField value={schedule.timeZone} change={change('timeZone')} />
        <label>{texts.fields.concurrencyPolicy}
          <select name="concurrencyPolicy" value={schedule.concurrencyPolicy} onChange={change('concurrencyPolicy')}>
            {policies.map((policy) => <option key={policy} value={policy}>{texts.policies[policy]}</option>)}
          </select>
          <span class="help">{texts.fieldHelp.concurrencyPolicy}</span>
        </label>
        <label>{texts.fields.containerImage} *
          <input name="image" value={schedule.image} spellcheck={false} autocomplete="off" onInput={change('image')} />
          <span class="help">{texts.fieldHelp.containerImage}</span>
        </label>
        {input('command')}
      </section>
      <section class="card">
        <h2>{texts.columns.schedule}</h2>
        <Explain cronTab={{ metadata: { name: schedule.name }, spec: { ...times, timeZone: schedule.timeZone.trim() || undefined } }} live />
      </section>
    </>
  );
}
