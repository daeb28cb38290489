import { openDirectNode, openNodeProcess } from '../support/node-harness.ts';
import { describeWith, requires } from '../support/requires.ts';
import { nodeContract } from './node.contract.ts';
import { nodeExecContract } from './node-exec.contract.ts';
import { nodeFilesContract } from './node-files.contract.ts';
import { nodeProcessesContract } from './node-processes.contract.ts';
import { nodeSessionsContract } from './node-sessions.contract.ts';
import { nodeTerminalsContract } from './node-terminals.contract.ts';

const describeNode = describeWith(requires.linux, requires.root, requires.cgroups);

describeNode('a node called directly', () => {
  nodeContract(() => openDirectNode());
  nodeExecContract(() => openDirectNode());
  nodeFilesContract(() => openDirectNode());
  nodeProcessesContract(() => openDirectNode());
  nodeSessionsContract(() => openDirectNode());
  nodeTerminalsContract(() => openDirectNode());
});

describeNode('a node in its own process, over HTTP', () => {
  nodeContract(() => openNodeProcess());
  nodeExecContract(() => openNodeProcess());
  nodeFilesContract(() => openNodeProcess());
  nodeProcessesContract(() => openNodeProcess());
  nodeSessionsContract(() => openNodeProcess());
  nodeTerminalsContract(() => openNodeProcess());
});
