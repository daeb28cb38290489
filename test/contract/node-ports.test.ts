import { openDirectNode, openNodeProcess } from '../support/node-harness.ts';
import { describeWith, requires } from '../support/requires.ts';
import { nodePortsContract } from './node-ports.contract.ts';

const describeNode = describeWith(requires.linux, requires.root, requires.cgroups, requires.program('python3'));

describeNode('the ports of a node called directly', () => nodePortsContract(() => openDirectNode()));

describeNode('the ports of a node in its own process, over HTTP', () => nodePortsContract(() => openNodeProcess()));
