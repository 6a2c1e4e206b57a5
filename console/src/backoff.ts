/** The time in milliseconds before the next attempt after n failures: doubled up to a limit, with jitter of a quarter. */
export function backoff(failures: number, random: () => number = Math.random): number {
  const full = Math.min(250 * 2 ** Math.min(failures, 10), 8000);
  return Math.round(full * (0.75 + random() / 4));
}
