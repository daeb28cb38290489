/** Sessions over HTTP: commands in a shell, processes started from it beside stateless ones, and what an idle one takes. */
import type { Process, Sandbox, Session } from '../../src/sdk/index.ts';
import type { BareHttp } from '../bare-http.ts';
import { againstLimit, againstPeer, type Finding, figure, formatNumber } from '../finding.ts';
import type { HttpClient } from '../http-client.ts';
import { interleave, timed } from '../interleave.ts';
import type { Row } from '../row.ts';
import { openBareHttp, openHttp, startPlatform } from '../start.ts';
import { anonymousBytesOf, availableBytes } from '../system.ts';

/** Warm as a daemon is that has been up for a while. */
const commands = { rounds: 400, warmups: 1_000 };
const startRounds = 150;
const streams = { rounds: 15, warmups: 5 };
const streamBytes = 10 * 1024 ** 2;
const idleSessions = 100;
const mebibyte = 1024 ** 2;

export const sessionsRow: Row = {
  name: 'sessions',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    const sandbox = await platform.client.sandboxes.create();
    const session = await sandbox.sessions.create();
    const http = openHttp(scope, platform);
    return [
      ...(await measureCommands(openBareHttp(scope, platform), http, sandbox, session)),
      await measureStarts(http, sandbox, session),
      await measureStreams(sandbox, session),
      await measureIdle(sandbox, platform.server.pid),
    ];
  },
};

async function measureCommands(
  bare: BareHttp,
  http: HttpClient,
  sandbox: Sandbox,
  session: Session,
): Promise<Finding[]> {
  const inSession = `/v1/sandboxes/${sandbox.id}/sessions/${session.id}/exec`;
  const variants = {
    builtin: () => timed(() => runBare(bare, inSession, { command: ':' })),
    program: () => timed(() => runBare(bare, inSession, { command: '/bin/true' })),
    builtinByNode: () => timed(() => runOne(http, inSession, { command: ':' })),
    stateless: () => timed(() => runOne(http, `/v1/sandboxes/${sandbox.id}/exec`, { command: ['true'] })),
  };
  const samples = await interleave(variants, commands);
  const stateless = figure('stateless exec `true`', samples.stateless);
  const builtin = figure('`:` in a session over HTTP', samples.builtin);
  return [
    againstLimit(builtin, { atMost: 0.5 }),
    againstLimit(figure('`/bin/true` in a session over HTTP', samples.program), { atMost: 1.6 }),
    againstPeer(figure('`:` in a session, through `http` of Node', samples.builtinByNode), stateless),
  ];
}

async function measureStarts(http: HttpClient, sandbox: Sandbox, session: Session): Promise<Finding> {
  const body = { command: 'true', autoCleanup: true };
  const variants = {
    ours: () => timed(() => http.json('POST', `/v1/sandboxes/${sandbox.id}/sessions/${session.id}/processes`, body)),
    stateless: () => timed(() => http.json('POST', `/v1/sandboxes/${sandbox.id}/processes`, body)),
  };
  const samples = await interleave(variants, { rounds: startRounds, warmups: 10 });
  const ours = figure('start of a process from a session', samples.ours);
  return againstPeer(ours, figure('start of a stateless one', samples.stateless), { atMost: 1.2 });
}

async function measureStreams(sandbox: Sandbox, session: Session): Promise<Finding> {
  const command = `head -c ${streamBytes} /dev/zero`;
  const variants = {
    ours: () => timed(async () => readAll(await session.processes.start(command, { autoCleanup: true }))),
    stateless: () => timed(async () => readAll(await sandbox.processes.start(command, { autoCleanup: true }))),
  };
  const samples = await interleave(variants, streams);
  const ours = figure('10 MB streamed from a process of a session', samples.ours);
  return againstPeer(ours, figure('from a stateless one', samples.stateless), { atMost: 1.2 });
}

async function measureIdle(sandbox: Sandbox, serverPid: number): Promise<Finding> {
  const before = { available: availableBytes(), server: anonymousBytesOf(serverPid) };
  for (let index = 0; index < idleSessions; index++) await sandbox.sessions.create();
  const taken = (before.available - availableBytes()) / mebibyte;
  const server = (anonymousBytesOf(serverPid) - before.server) / mebibyte;
  return againstLimit(
    figure('memory of an idle session', [taken / idleSessions], 'MiB'),
    { atMost: 5 },
    {
      notes: [
        `${idleSessions} took ${formatNumber(taken)} MiB of MemAvailable, ${formatNumber(server)} of them in the daemon.`,
      ],
    },
  );
}

async function runBare(bare: BareHttp, path: string, body: unknown): Promise<void> {
  const { exitCode } = JSON.parse(await bare.post(path, JSON.stringify(body))) as { exitCode: number };
  if (exitCode !== 0) throw new Error(`The command ended with ${exitCode}.`);
}

async function runOne(http: HttpClient, path: string, body: unknown): Promise<void> {
  const { exitCode } = await http.json<{ exitCode: number }>('POST', path, body);
  if (exitCode !== 0) throw new Error(`The command ended with ${exitCode}.`);
}

async function readAll(process: Process): Promise<void> {
  let bytes = 0;
  for await (const item of process.output()) if (item.kind === 'output') bytes += item.bytes.byteLength;
  if (bytes !== streamBytes) throw new Error(`${bytes} bytes came.`);
}
