// The display of a machine, with noVNC. This file is loaded when the first screen is opened.
import RFB from '@novnc/novnc';
import { useEffect, useRef, useState } from 'preact/hooks';
import { getFile, sessionKey, socketOrigin } from './api';
import { save } from './save';
import { texts } from './texts';

const control = { keysym: 0xffe3, code: 'ControlLeft' };

export default function Screen({ namespace, name, screenshot, mayNot }: { namespace: string; name: string; screenshot: string; mayNot?: string }) {
  const place = useRef<HTMLDivElement>(null);
  const after = useRef<HTMLButtonElement>(null);
  const rfb = useRef<RFB>(null);
  const [open, setOpen] = useState(false);
  const [message, say] = useState<string>(texts.screen.connecting);
  const [attempt, again] = useState(0);
  useEffect(() => {
    say(texts.screen.connecting);
    const made = connect(place.current!, `${namespace}/${name}`, setOpen, say);
    rfb.current = made;
    return () => made.disconnect();
  }, [namespace, name, attempt]);
  const leave = (event: KeyboardEvent) => {
    if (!event.ctrlKey || event.key !== ']') return;
    event.preventDefault();
    event.stopPropagation(); // otherwise the keyboard could not leave the screen
    rfb.current?.sendKey(control.keysym, control.code, false);
    rfb.current?.blur();
    after.current?.focus();
  };
  return (
    <>
      <div class="actions">
        <button ref={after} type="button" class="small" onClick={() => again(attempt + 1)}>{texts.reconnect}</button>
        <button type="button" class="small" disabled={!open} onClick={() => rfb.current?.sendCtrlAltDel()}>Ctrl-Alt-Del</button>
        <button type="button" class="small" disabled={!open} onClick={() => void place.current?.requestFullscreen()}>{texts.screen.full}</button>
        <button type="button" class="small" disabled={mayNot !== ''} title={mayNot} onClick={() => void save(getFile(screenshot), `${name}.png`, say)}>{texts.screen.screenshot}</button>
        <span class="message" role="status">{message}</span>
      </div>
      <div ref={place} class="vnc" role="application" aria-label={texts.screen.fullLabel} onKeyDownCapture={leave} />
    </>
  );
}

/** Connects a place of the page with a display. Text messages are from the program: a page cannot read why a WebSocket is refused. */
function connect(place: HTMLElement, machine: string, setOpen: (open: boolean) => void, say: (message: string) => void): RFB {
  const socket = new WebSocket(`${socketOrigin()}/screen/${machine}`, ['keelson-screen', sessionKey()]);
  let reason = '';
  socket.addEventListener('message', (event) => {
    if (typeof event.data !== 'string') return;
    event.stopImmediatePropagation();
    reason = JSON.parse(event.data).error;
  });
  socket.addEventListener('close', (event) => { reason ||= event.reason; });
  const rfb = new RFB(place, socket);
  rfb.scaleViewport = true;
  rfb.background = '#14181d';
  rfb.addEventListener('connect', () => { setOpen(true); say(texts.screen.hint); rfb.focus(); });
  rfb.addEventListener('disconnect', () => { setOpen(false); say(reason || texts.screen.ended); });
  return rfb;
}
