// Builds the page into ../internal/console/dist, or with --test the unit tests into build/.
import { build } from 'esbuild';
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';

const common = { bundle: true, charset: 'utf8', logLevel: 'warning', jsx: 'automatic', jsxImportSource: 'preact' };

if (process.argv.includes('--test')) {
  await rm('build', { recursive: true, force: true });
  const tests = (await readdir('test')).filter((name) => name.endsWith('.test.ts'));
  await build({
    ...common, entryPoints: tests.map((name) => `test/${name}`), outdir: 'build', outExtension: { '.js': '.mjs' },
    platform: 'node', target: 'node18', format: 'esm',
  });
} else {
  const dist = process.env.DIST ?? '../internal/console/dist';
  await rm(dist, { recursive: true, force: true });
  await mkdir(`${dist}/assets`, { recursive: true });
  const { metafile } = await build({
    metafile: true,
    ...common, entryPoints: { app: 'src/main.tsx', style: 'src/style.css' }, outdir: `${dist}/assets`,
    minify: true, target: 'es2022', format: 'esm', splitting: true, legalComments: 'none',
    banner: { js: '/*! Contains Preact, https://preactjs.com, xterm.js, https://xtermjs.org, CodeMirror, https://codemirror.net, and uPlot, https://github.com/leeoniya/uPlot, MIT License, and noVNC, https://github.com/novnc/noVNC, MPL-2.0, see *-license.txt */' },
  });
  // What app.js imports is loaded beside it, not after it.
  const [, app] = Object.entries(metafile.outputs).find(([name]) => name.endsWith('/app.js'));
  const names = app.imports.filter((i) => i.kind === 'import-statement').map((i) => i.path.slice(i.path.lastIndexOf('/') + 1));
  const preloads = names.map((name) => `<link rel="modulepreload" href="/assets/${name}">\n`).join('');
  await writeFile(`${dist}/index.html`, (await readFile('src/index.html', 'utf8')).replace('</head>', `${preloads}</head>`));
  await cp('src/icon.svg', `${dist}/assets/icon.svg`);
  await cp('node_modules/preact/LICENSE', `${dist}/assets/preact-license.txt`);
  await cp('node_modules/@xterm/xterm/LICENSE', `${dist}/assets/xterm-license.txt`);
  await cp('node_modules/@codemirror/view/LICENSE', `${dist}/assets/codemirror-license.txt`);
  await cp('node_modules/@novnc/novnc/LICENSE.txt', `${dist}/assets/novnc-license.txt`);
  await cp('node_modules/uplot/LICENSE', `${dist}/assets/uplot-license.txt`);
}
