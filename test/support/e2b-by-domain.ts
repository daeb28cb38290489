/**
 * A program that uses E2B's SDK as its users do in domain mode: all it has is a domain, and a certificate authority in its environment. Names below the
 * domain lead to this machine, as its DNS would say. Prints what it saw as one line of JSON.
 */
import dns from 'node:dns';
import { syncBuiltinESMExports } from 'node:module';
import { setTimeout } from 'node:timers/promises';

const [domain = ''] = (process.env['E2B_DOMAIN'] ?? '').split(':');
const realLookup = dns.lookup;
dns.lookup = ((name: string, given: unknown, done: unknown) => {
  const answer = typeof given === 'function' ? given : done;
  const options = typeof given === 'function' ? {} : given;
  const here = name === domain || name.endsWith(`.${domain}`) ? '127.0.0.1' : name;
  realLookup(here, options as dns.LookupOptions, answer as (error: Error | null) => void);
}) as typeof dns.lookup;
syncBuiltinESMExports();

const { Sandbox } = await import('e2b');
const sandbox = await Sandbox.create('base', { timeoutMs: 60_000 });
const host = sandbox.getHost(8_123);
const isRunning = await sandbox.isRunning();
const unheard = await fetch(`https://${host}/`).then(async (answer) => ({
  status: answer.status,
  body: (await answer.json()) as unknown,
}));
const { stdout } = await sandbox.commands.run('echo $((6 * 7))');
await sandbox.files.write('/tmp/said', 'by domain');
const signed = await sandbox.downloadUrl('/tmp/said', { useSignatureExpiration: 60_000 });
const read = await fetch(signed).then((answer) => answer.text());
const upload = await sandbox.uploadUrl('/tmp/sent', { useSignatureExpiration: 600 });
const form = new FormData();
form.append('file', new Blob(['sent']), 'sent');
await fetch(upload, { method: 'POST', body: form });
const uploaded = await sandbox.files.read('/tmp/sent');
await sandbox.files.write('/tmp/marked', 'x', { metadata: { owner: 'me' } });
const { metadata } = await sandbox.files.getInfo('/tmp/marked');

const { sandboxId } = sandbox;
const connected = (await Sandbox.connect(sandboxId)).sandboxId === sandboxId;
const others = await Promise.all(
  [1, 2].map((n) => Sandbox.create('base', { metadata: { walk: 'yes', n: String(n) } })),
);
const pages = Sandbox.list({ query: { metadata: { walk: 'yes' } }, limit: 1 });
const listed: number[] = [];
while (pages.hasNext) listed.push((await pages.nextItems()).length);
await Promise.all(others.map((other) => other.kill()));

const cat = await sandbox.commands.run('cat', { background: true, stdin: true });
const again = await sandbox.commands.connect(cat.pid);
await sandbox.commands.sendStdin(cat.pid, 'typed');
await sandbox.commands.closeStdin(cat.pid);
const echoed = (await again.wait()).stdout;
const sleeper = await sandbox.commands.run('sleep 300', { background: true });
const stopped = await sleeper.kill();

let screen = '';
const onData = (bytes: Uint8Array) => {
  screen += Buffer.from(bytes).toString();
};
const pty = await sandbox.pty.create({ cols: 90, rows: 30, onData });
await sandbox.pty.resize(pty.pid, { cols: 101, rows: 33 });
await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('echo "size $(tput cols)"; exit\n'));
await pty.wait();

const watched: string[] = [];
await sandbox.files.makeDir('/tmp/watched');
const watch = await sandbox.files.watchDir('/tmp/watched', ({ type, name }) => void watched.push(`${type} ${name}`));
await sandbox.files.write('/tmp/watched/file', 'x');
for (let tries = 0; !watched.includes('write file') && tries < 300; tries++) await setTimeout(100);
await watch.stop();

await sandbox.git.init('/tmp/repository', { initialBranch: 'main' });
const { currentBranch } = await sandbox.git.status('/tmp/repository');

await sandbox.pause();
const { state } = await sandbox.getInfo();
await sandbox.connect();
const [fork] = await sandbox.fork({ count: 1 });
const forked = fork instanceof Sandbox && (await fork.files.read('/tmp/said'));
if (fork instanceof Sandbox) await fork.kill();
const { snapshotId } = await sandbox.createSnapshot();
const fromSnapshot = await Sandbox.create(snapshotId);
const kept = await fromSnapshot.files.read('/tmp/said');
await fromSnapshot.kill();
await Sandbox.deleteSnapshot(snapshotId);
await sandbox.setTimeout(120_000);
const metrics = (await sandbox.getMetrics()).length;

const running = await sandbox.commands.run('sleep 300', { background: true, timeoutMs: 0 });
const broken = running.wait().then(
  () => false,
  () => true,
);
const killed = await sandbox.kill();
const isBroken = await broken;
const isRunningAfter = await sandbox.isRunning();
const walked = {
  ...{ uploaded, connected, listed, echoed, stopped, screen: /size \d+/.exec(screen)?.[0], watched, currentBranch },
  ...{ state, forked, kept, metrics, isBroken, metadata },
};
console.log(JSON.stringify({ stdout, read, host, isRunning, unheard, killed, isRunningAfter, walked }));
