// Checks config/monitoring/dashboard.json with the TypeScript compiler, as the value of a constant of type
// Shape. Run it as `make dashboard`.
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

const here = new URL('.', import.meta.url);
const dashboard = process.argv[2] ?? new URL('../../config/monitoring/dashboard.json', here);
writeFileSync(
  new URL('dashboard.ts', here),
  `import type { Shape } from './shape';\nexport const dashboard: Shape = ${readFileSync(dashboard, 'utf8')};\n`,
);
const options = ['--noEmit', '--strict', '--skipLibCheck', '--moduleResolution', 'bundler', '--module', 'esnext', '--target', 'es2022'];
try {
  execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', ...options, 'dashboard.ts'], { cwd: here, stdio: 'inherit' });
} catch {
  console.error(`dashboard: ${dashboard} does not match Grafana's types; line numbers refer to hack/dashboard/dashboard.ts`);
  process.exit(1);
}
