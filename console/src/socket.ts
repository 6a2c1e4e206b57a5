// One WebSocket for all watches of the window: a browser opens only six other connections.
import { sessionEnded, sessionKey, socketOrigin, type Status } from './api';
import { backoff } from './backoff';
import { Source } from './signal';

/** The program gives a sign of life each five seconds. */
const silence = 15_000;

export interface Watcher {
  /** The path of the watch, from the last known version. */
  path(): string;
  event(event: { type: string; object: any }): void;
  /** The API has accepted the watch. */
  open(): void;
  /** The watch has ended, or could not begin. The watcher starts it again. */
  end(status: Status): void;
}

export class Socket extends Source {
  /** Since when the program does not answer; 0 while it does. */
  lostSince = 0;
  /** The program does not know the session. */
  ended = false;

  private socket?: WebSocket;
  private open = false;
  private failures = 0;
  private next = 1;
  private watchers = new Map<number, Watcher>();
  private alarm = 0;

  constructor() {
    super();
    this.connect();
    addEventListener('online', () => this.socket === undefined && this.connect());
  }

  /** Starts a watch. The returned function stops it. */
  watch(watcher: Watcher): () => void {
    let id = this.next++;
    this.watchers.set(id, watcher);
    if (this.open) this.tell(id, watcher.path());
    return () => {
      id = this.idOf(watcher) ?? id;
      if (this.watchers.delete(id) && this.open) this.tell(id, '');
    };
  }

  private idOf(watcher: Watcher): number | undefined {
    for (const [id, w] of this.watchers) if (w === watcher) return id;
    return undefined;
  }

  private tell(id: number, path: string): void {
    this.socket?.send(JSON.stringify({ id, path }));
  }

  private connect(): void {
    if (this.ended || this.socket) return;
    const socket = new WebSocket(`${socketOrigin()}/watch`, ['keelson-watch', sessionKey()]);
    this.socket = socket;
    this.arm();
    socket.onmessage = (message) => {
      if (!this.open) this.begin();
      this.arm();
      this.receive(JSON.parse(message.data));
    };
    socket.onclose = () => this.lose(socket);
  }

  /** All watches begin again where they were: with new IDs, so that nothing late is mistaken. */
  private begin(): void {
    this.open = true;
    this.failures = 0;
    this.lostSince = 0;
    const all = [...this.watchers.values()];
    this.watchers.clear();
    for (const watcher of all) {
      const id = this.next++;
      this.watchers.set(id, watcher);
      this.tell(id, watcher.path());
    }
    this.changed();
  }

  private receive(message: { id?: number; open?: boolean; event?: { type: string; object: any }; end?: Status }): void {
    const watcher = message.id ? this.watchers.get(message.id) : undefined;
    if (!watcher || !message.id) return;
    if (message.open) watcher.open();
    if (message.event) watcher.event(message.event);
    if (message.end) {
      this.watchers.delete(message.id);
      watcher.end(message.end);
    }
  }

  private arm(): void {
    clearTimeout(this.alarm);
    this.alarm = setTimeout(() => this.socket && this.lose(this.socket), silence) as unknown as number;
  }

  private async lose(socket: WebSocket): Promise<void> {
    if (this.socket !== socket) return;
    clearTimeout(this.alarm);
    socket.onmessage = socket.onclose = null;
    socket.close();
    this.socket = undefined;
    this.open = false;
    this.lostSince ||= Date.now();
    this.changed();
    if (await sessionEnded()) {
      this.ended = true;
      this.changed();
      return;
    }
    setTimeout(() => this.connect(), backoff(this.failures++));
  }
}
