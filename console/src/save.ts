import { APIError } from './api';
import { failure } from './log';

/** Saves a file under a name, or says why there is none. */
export async function save(file: Promise<Blob>, name: string, say: (message: string) => void): Promise<void> {
  try {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(await file);
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (err) {
    say(err instanceof APIError ? failure(err) : String(err));
  }
}
