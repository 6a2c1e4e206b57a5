import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { APIError, enter, logIn, waysIn } from './api';
import { App } from './app';
import { CreatePage } from './create';
import { DetailPage } from './detail';
import { Frame } from './frame';
import { KindsPage } from './kindspage';
import { ListPage } from './list';
import { Overview } from './overview';
import { Copy, Empty } from './parts';
import { followLinks, router } from './route';
import { useSource } from './signal';
import { texts } from './texts';

function Root({ app }: { app: App }) {
  useSource(router, app.socket, app.discovery);
  if (app.socket.ended) return <Outside login={app.login} />;
  const { plural, namespace, name } = router.route;
  if (!name) router.filter = namespace;
  return <Frame app={app}><Page app={app} plural={plural} namespace={namespace} name={name} /></Frame>;
}

function Page({ app, plural, namespace, name }: { app: App; plural: string; namespace: string; name: string }) {
  if (plural === '') return <Overview app={app} />;
  if (plural === 'kinds' && !name) return <KindsPage app={app} />;
  const kind = app.kindOf(plural);
  if (!kind && app.discovery.phase !== 'there') return <Discovering app={app} />;
  if (!kind) return <Empty title={texts.unknownPage}><a href="/">{texts.back}</a></Empty>;
  if (router.route.create) return <CreatePage key={plural} kind={kind} sshKey={app.about.sshKey} />;
  if (name) return <DetailPage key={location.pathname} app={app} kind={kind} namespace={namespace} name={name} />;
  return <ListPage key={plural} app={app} kind={kind} />;
}

/** A page of a kind that is perhaps one of the API. */
function Discovering({ app }: { app: App }) {
  useEffect(() => app.discovery.load(), []);
  return <Empty title={app.discovery.phase === 'failed' ? texts.kinds.failed : texts.loading}><p>{app.discovery.message}</p></Empty>;
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

/** The form for a token. */
function LogIn() {
  const [failure, setFailure] = useState('');
  const submit = async (event: Event) => {
    event.preventDefault();
    const field = (event.target as HTMLFormElement).elements.namedItem('token') as HTMLInputElement;
    const why = await logIn(field.value).catch(() => texts.lostConsole);
    if (why) setFailure(why);
    else location.reload();
  };
  return (
    <main class="alone">
      <Empty title={texts.logIn}>
        <form onSubmit={submit}>
          <label for="token">{texts.token}</label>{' '}
          <input id="token" name="token" type="password" autocomplete="off" required />{' '}
          <button type="submit">{texts.logIn}</button>
        </form>
        <p role="alert">{failure}</p>
        <p>{texts.logInHint}</p>
        <p><code>{texts.logInCommand}</code> <Copy text={texts.logInCommand} /></p>
      </Empty>
    </main>
  );
}

function Outside({ login }: { login: boolean }) {
  return login ? <LogIn /> : <NoSession message="" />;
}

const root = document.getElementById('app')!;
followLinks();
const ways = waysIn().catch(() => ({ login: false })); // beside the rest: each question takes time of the first view
try {
  const about = await enter();
  const app = new App(about);
  app.login = (await ways).login;
  render(<Root app={app} />, root);
} catch (err) {
  if (!(err instanceof APIError)) throw err;
  const login = err.noSession && (await ways).login;
  if (login) render(<LogIn />, root);
  else render(<NoSession message={err.noSession ? '' : err.message || texts.lostConsole} />, root);
}
