import { openNodeProcess } from '../support/node-harness.ts';
import { describeWith, requires } from '../support/requires.ts';
import { openLocalRig, rigOfNode } from '../support/workspace-rig.ts';
import { checkoutCommits, nodeWorkspacesContract } from './node-workspaces.contract.ts';

const limits = { checkoutCommits };

describeWith(requires.linux, requires.program('git'))('workspaces called directly, with directories as checkouts', () =>
  nodeWorkspacesContract(() => openLocalRig({ limits })),
);

describeWith(
  requires.linux,
  requires.root,
  requires.cgroups,
  requires.program('git'),
)('workspaces of a node in its own process, over HTTP, with checkouts in a sandbox', () =>
  nodeWorkspacesContract(async () => rigOfNode(await openNodeProcess({ workspaceLimits: limits }))),
);
