import { useEffect, useState } from 'preact/hooks';

/** Something whose listeners learn of changes, at most once for each frame of the screen. */
export class Source {
  private listeners = new Set<() => void>();
  private waiting = false;
  /** The number of changes. */
  changes = 0;

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed(): void {
    this.changes++;
    if (this.waiting) return;
    this.waiting = true;
    const tell = () => {
      if (!this.waiting) return;
      this.waiting = false;
      for (const listener of [...this.listeners]) listener();
    };
    requestAnimationFrame(tell);
    setTimeout(tell, 200); // a hidden window has no frames
  }
}

/** Renders the component again when a source changes. */
export function useSource(...sources: (Source | undefined)[]): void {
  const [, set] = useState(0);
  const rendered = sources.map((s) => s?.changes);
  useEffect(() => {
    if (sources.some((s, i) => s?.changes !== rendered[i])) set((n) => n + 1); // changed before this listens
    const ends = sources.map((s) => s?.subscribe(() => set((n) => n + 1)));
    return () => ends.forEach((end) => end?.());
  }, sources);
}

/** The current time, renewed each second while the component is shown. */
export function useNow(): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
