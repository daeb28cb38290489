import { openDirectNode, openNodeProcess } from '../support/node-harness.ts';
import { describeWith, requires } from '../support/requires.ts';
import { nodeLoadContract } from './node-load.contract.ts';

const describeNode = describeWith(requires.linux, requires.root, requires.cgroups, requires.program('python3'));

describeNode('the load of a node called directly', () => nodeLoadContract(() => openDirectNode()));

describeNode('the load of a node in its own process, over HTTP', () => nodeLoadContract(() => openNodeProcess()));
