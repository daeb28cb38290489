/**
 * A program that uses E2B's SDK as its users do in domain mode: all it has is a domain, and a certificate authority in its environment. Names below the
 * domain lead to this machine, as its DNS would say. Prints what it saw as one line of JSON.
 */
import dns from 'node:dns';
import { syncBuiltinESMExports } from 'node:module';

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
const killed = await sandbox.kill();
const isRunningAfter = await sandbox.isRunning();
console.log(JSON.stringify({ stdout, read, host, isRunning, unheard, killed, isRunningAfter }));
