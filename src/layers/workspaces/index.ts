/** Trees of files as git keeps them: what a workspace's home does with objects. */
export { buildTree, type FileMode, oneChunk, type TreeStep } from './build-tree.ts';
export { checkIds, readCommit, readCommits, requireObjects, treeOf, writeCommit } from './commits.ts';
export { defaultWorkspaceLimits, isSafePath, unsafe, type WorkspaceLimits } from './content-limits.ts';
export { exportBundle } from './export-bundle.ts';
export { exportArchive, exportCheckout } from './export-checkout.ts';
export { GitProgram } from './git-program.ts';
export { listHolds, releaseHolds, setHold } from './holds.ts';
export { importArchive } from './import-archive.ts';
export { importBundle, requireWhole } from './import-bundle.ts';
export { mergeTrees } from './merge-trees.ts';
export { probeGit, requireGit } from './probe-git.ts';
export { judgeRemote } from './remote-address.ts';
export { fetchRemote, pushToRemote } from './remotes.ts';
export { makeRepository, removeLocks, takeOverRepository } from './repository.ts';
export { removeRetries, Staging } from './staging.ts';
export { tidyObjects } from './tidy-objects.ts';
export { diffTrees, patchBetween } from './tree-diff.ts';
export { filesOf, type TreeFile, verifyTree } from './verify-tree.ts';
