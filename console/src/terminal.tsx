// The serial console of a machine in a terminal. This file is loaded when the first terminal is opened.
import { Terminal as Screen } from '@xterm/xterm';
import { useEffect, useRef, useState } from 'preact/hooks';
import { sessionKey, socketOrigin } from './api';
import { backoff } from './backoff';
import { Scroll } from './parts';
import { texts } from './texts';

/** What is known of the session: whether the machine gets the input, and why there is none. */
interface Link {
  open: boolean;
  writer: boolean;
  message: string;
}

/** The manager is being restarted, or the program has lost the machine: the same session can be opened again. */
const goingAway = 1001;
/** How many bytes a message to the program has at most. */
const longest = 4096;
const encoder = new TextEncoder();

export default function Terminal({ namespace, name }: { namespace: string; name: string }) {
  const place = useRef<HTMLDivElement>(null);
  const after = useRef<HTMLButtonElement>(null);
  const [link, set] = useState<Link>({ open: false, writer: false, message: '' });
  const [attempt, again] = useState(0);
  const screen = useRef<Screen>(null);
  useEffect(() => {
    const made = makeScreen(place.current!, () => after.current?.focus());
    screen.current = made;
    return () => made.dispose();
  }, []);
  useEffect(() => connect(screen.current!, `${namespace}/${name}`, set), [namespace, name, attempt]);
  return (
    <div class="terminal">
      <div class="actions">
        <button ref={after} type="button" class="small" onClick={() => again(attempt + 1)}>{link.open && !link.writer ? texts.takeOver : texts.reconnect}</button>
        <span class="message" role="status">{link.message || (link.open ? (link.writer ? texts.terminalHint : texts.viewer) : texts.connecting)}</span>
      </div>
      <Scroll><div ref={place} class="screen" /></Scroll>
    </div>
  );
}

function makeScreen(place: HTMLElement, leave: () => void): Screen {
  const style = getComputedStyle(place);
  const screen = new Screen({
    cols: 80, rows: 24, scrollback: 5000, fontSize: 13, fontFamily: style.fontFamily,
    theme: { background: '#14181d', foreground: '#e4e8ee' },
  });
  screen.attachCustomKeyEventHandler((event) => {
    if (event.type !== 'keydown' || !event.ctrlKey || event.key !== ']') return true;
    event.preventDefault();
    leave(); // otherwise the keyboard could not leave the terminal
    return false;
  });
  openScreen(screen, place);
  screen.focus();
  return screen;
}

/** Opens a screen. Its style elements get the nonce that the policy of the page asks for. */
function openScreen(screen: Screen, place: HTMLElement): void {
  const { nonce } = document.querySelector<HTMLLinkElement>('link[rel=stylesheet]')!;
  document.createElement = (tag: string) => Object.assign(Document.prototype.createElement.call(document, tag), tag === 'style' ? { nonce } : {});
  try {
    screen.open(place);
  } finally {
    delete (document as Partial<Document>).createElement; // that of the prototype again
  }
}

/** Connects a screen with a console until the returned function is called. */
function connect(screen: Screen, machine: string, set: (link: Link) => void): () => void {
  let socket: WebSocket;
  let timer = 0;
  let failures = 0;
  let ended = false;
  const link: Link = { open: false, writer: false, message: '' };
  const tell = (change: Partial<Link>) => {
    if (!ended) set({ ...Object.assign(link, change) });
  };
  const open = () => {
    let refused = false;
    socket = new WebSocket(`${socketOrigin()}/terminal/${machine}`, ['keelson-terminal', sessionKey()]);
    socket.binaryType = 'arraybuffer';
    socket.onmessage = ({ data }) => {
      failures = 0;
      if (typeof data !== 'string') return screen.write(new Uint8Array(data as ArrayBuffer));
      const { error, notice, writer } = JSON.parse(data);
      refused = !!error;
      if (!link.open && !error) screen.reset(); // the earlier output comes again
      tell(error ? { message: error } : { open: true, writer, message: notice ?? '' });
    };
    socket.onclose = ({ code, reason }) => {
      tell({ open: false, message: refused ? link.message : reason || texts.lostConsole });
      if (!ended && !refused && (code === goingAway || code === 1006)) timer = setTimeout(open, backoff(failures++)) as unknown as number;
    };
  };
  // The program refuses long messages, and a paste may be long.
  const send = (bytes: Uint8Array<ArrayBuffer>) => {
    for (let at = 0; link.open && at < bytes.length; at += longest) socket.send(bytes.subarray(at, at + longest));
  };
  const input = [
    screen.onData((text) => send(encoder.encode(text))),
    screen.onBinary((text) => send(Uint8Array.from(text, (c) => c.charCodeAt(0)))),
  ];
  tell({});
  open();
  return () => {
    ended = true;
    clearTimeout(timer);
    input.forEach((i) => i.dispose());
    socket.close();
  };
}
