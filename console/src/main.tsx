import { render } from 'preact';
import { APIError, enter } from './api';
import { App } from './app';
import { CreatePage } from './create';
import { DetailPage } from './detail';
import { Frame } from './frame';
import { ListPage } from './list';
import { Overview } from './overview';
import { Copy, Empty } from './parts';
import { followLinks, router } from './route';
import { useSource } from './signal';
import { texts } from './texts';

function Root({ app }: { app: App }) {
  useSource(router, app.socket);
  if (app.socket.ended) return <NoSession message="" />;
  const { plural, namespace, name } = router.route;
  if (!name) router.filter = namespace;
  return <Frame app={app}><Page app={app} plural={plural} namespace={namespace} name={name} /></Frame>;
}

function Page({ app, plural, namespace, name }: { app: App; plural: string; namespace: string; name: string }) {
  if (plural === '') return <Overview app={app} />;
  const kind = app.kindOf(plural);
  if (!kind) return <Empty title={texts.unknownPage}><a href="/">{texts.back}</a></Empty>;
  if (router.route.create) return <CreatePage key={plural} kind={kind} />;
  if (name) return <DetailPage key={location.pathname} app={app} kind={kind} namespace={namespace} name={name} />;
  return <ListPage key={plural} app={app} kind={kind} />;
}

function NoSession({ message }: { message: string }) {
  return (
    <main class="alone">
      <Empty title={texts.noSession}>
        <p>{message}</p>
        <p>{texts.sessionHint}</p>
        <p><code>{texts.sessionCommand}</code> <Copy text={texts.sessionCommand} /></p>
      </Empty>
    </main>
  );
}

const root = document.getElementById('app')!;
followLinks();
try {
  const about = await enter();
  render(<Root app={new App(about)} />, root);
} catch (err) {
  if (!(err instanceof APIError)) throw err;
  render(<NoSession message={err.noSession ? '' : err.message || texts.lostConsole} />, root);
}
