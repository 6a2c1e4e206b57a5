// Small parts of all pages.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { remedies } from './remedies';
import { useNow, useSource } from './signal';
import { toneOfCell, type Tone } from './state';
import { texts } from './texts';
import { age, exact, relative, timeIn, until } from './time';

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return tone === 'plain' ? <>{children}</> : <span class={`badge ${tone}`}>{children}</span>;
}

/** A time as an age that stays current. */
export function Age({ at }: { at: number }) {
  const now = useNow();
  return Number.isNaN(at) ? null : <time dateTime={new Date(at).toISOString()} title={exact(at)}>{age(at, now)}</time>;
}

/** A coming time. */
export function Until({ at }: { at: number }) {
  const now = useNow();
  return <time dateTime={new Date(at).toISOString()} title={exact(at)}>{until(at, now)}</time>;
}

function Relative({ at, text }: { at: number; text: string }) {
  const now = useNow();
  return <time dateTime={text} title={text}>{relative(at, now)}</time>;
}

/** The text of a cell of the server's table: a state, a time or anything else. */
export function CellText({ column, text }: { column: string; text: string }) {
  const at = timeIn(text);
  return at === undefined ? <Badge tone={toneOfCell(column, text)}>{text}</Badge> : <Relative at={at} text={text} />;
}

/** A page or part without content, and why. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** What the documentation says about a reason, with the page that says it. */
export function RemedyText({ plural, reason }: { plural: string; reason: string }) {
  useSource(remedies);
  const found = remedies.of(plural, reason);
  if (!found) return null;
  return (
    <p class="remedy">{texts.remedy} {found.text.split('`').map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}{' '}
      <span class="count">{texts.remedyFrom(found.page)}</span>
    </p>
  );
}

export function Section({ title, count, children }: { title: string; count?: number; children: ComponentChildren }) {
  return (
    <section class="card">
      <h2>{title}{count !== undefined && <span class="count">{count.toLocaleString('en')}</span>}</h2>
      {children}
    </section>
  );
}

/** A dialog that is open while it is shown. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return <dialog ref={dialog} onClose={close} aria-labelledby="dialog-title"><h2 id="dialog-title">{title}</h2>{children}</dialog>;
}

/** The button of a dialog that does nothing. The dialog itself closes, which moves the focus back. */
export function Cancel({ label = texts.cancel as string }) {
  return <button type="button" onClick={(e) => e.currentTarget.closest('dialog')?.close()}>{label}</button>;
}

/** A part that scrolls to the side where it is too wide. Then the keyboard reaches it. */
export function Scroll({ children }: { children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [wide, set] = useState(false);
  useEffect(() => {
    const element = box.current!;
    const observer = new ResizeObserver(() => set(element.scrollWidth > element.clientWidth));
    observer.observe(element);
    for (const child of element.children) observer.observe(child);
    return () => observer.disconnect();
  }, []);
  return <div ref={box} class="scroll" role="group" tabIndex={wide ? 0 : undefined}>{children}</div>;
}

export function Copy({ text }: { text: string }) {
  const [done, set] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    set(true);
    setTimeout(() => set(false), 1500);
  };
  return <button type="button" class="small" onClick={() => void copy()}>{done ? texts.copied : texts.copy}</button>;
}
