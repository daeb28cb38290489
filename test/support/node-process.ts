/** A node in a process of its own, for tests: options as JSON in the first argument, one line of JSON out when it listens. Ends with stdin. */
import { parseFaults } from '../../src/base/index.ts';
import { NodeServer, SandboxNode, type SandboxNodeOptions } from '../../src/node/index.ts';

const { faults, token, ...options } = JSON.parse(process.argv[2]!) as SandboxNodeOptions & {
  faults: string;
  token: string;
};
const node = await SandboxNode.open({ ...options, faults: parseFaults(faults) });
const server = await NodeServer.listen({ node, token, host: '127.0.0.1', port: 0 });
process.stdout.write(`${JSON.stringify({ url: server.url })}\n`);
process.stdin.resume();
process.stdin.once('end', () => {
  void server
    .close()
    .then(() => node.close())
    .then(() => process.exit(0));
});
