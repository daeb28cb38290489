import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { expect, test } from 'vitest';
import { PlatformError } from '../protocol/index.ts';
import { type FindAddresses, isClosedAddress, judgedLookup, mayReach, noPrivateHosts } from './remote-rules.ts';

const refuse = (host: string) => new PlatformError('registry_denied', host);
const publicAddress = '93.184.215.14';

test('what only the machine reaches is closed, however it is written, and whatever else a name leads to', () => {
  for (const address of ['127.0.0.1', '10.1.2.3', '169.254.169.254', '::1', '::ffff:10.0.0.1', 'fe80::1', 'fc00::1']) {
    expect(isClosedAddress(address, noPrivateHosts), address).toBe(true);
    expect(mayReach('name.example', [publicAddress, address], noPrivateHosts), address).toBe(false);
    expect(mayReach('name.example', [address], { allowedHosts: ['name.example'] }), address).toBe(true);
  }
  expect(mayReach('name.example', ['fe80::1%eth0'], noPrivateHosts)).toBe(false);
  expect(isClosedAddress(publicAddress, noPrivateHosts)).toBe(false);
  expect(mayReach('name.example', [publicAddress, '2606:2800::1'], noPrivateHosts)).toBe(true);
});

test('a connection goes to the answer that was judged: a name that leads elsewhere a moment later leads nowhere', async () => {
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.on('error', () => {}).destroy();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  try {
    const answers = [publicAddress, '127.0.0.1', '127.0.0.1'];
    const find: FindAddresses = (_, __, callback) => callback(null, [{ address: answers.shift()!, family: 4 }]);
    const judged = judgedLookup(noPrivateHosts, refuse, find);
    expect(await new Promise((resolve) => judged('two.example', {}, (_, address) => resolve(address)))).toBe(
      publicAddress,
    );
    const [refusal] = await once(connect({ host: 'two.example', port, lookup: judged }), 'error').catch((error) => [
      error,
    ]);
    expect(refusal).toMatchObject({ code: 'registry_denied', message: 'two.example' });
    expect(connections).toBe(0);

    // The control: the same answer for a host that is named.
    const named = judgedLookup({ allowedHosts: ['two.example'] }, refuse, find);
    const socket = connect({ host: 'two.example', port, lookup: named });
    await once(socket, 'close');
    expect(connections).toBe(1);
    expect(answers).toEqual([]);
  } finally {
    server.close();
  }
});
