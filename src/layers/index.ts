/** What a root file system is made of. */
export { HostTemplate, removeUnfinishedTemplates, type TemplateLayers } from './host-template.ts';
export {
  defaultImageLimits,
  type ImageConfig,
  type ImageLimits,
  type ImageProgress,
  type ImageSource,
  parseImageSource,
  type RegistryCredentials,
  type UnpackedImage,
  type UnpackImageOptions,
  unpackImage,
} from './images/index.ts';
export type { DriverKind, ForkKind, Layer, LayerStore, LiveFreeze, Trees, Usage, Writable } from './layer-store.ts';
export { defaultPoolSizes, type PoolSizes } from './loop-pool.ts';
export { type OpenLayerStoreOptions, openLayerStore } from './open-layer-store.ts';
export { probeStorage, type StorageFinding, type StorageKind } from './probe-storage.ts';
export { noPrivateHosts, type RemoteRules } from './remote-rules.ts';
export { AptPackages, type ResolvedPackage, type ResolvedPackages } from './templates/apt-packages.ts';
export { baseName, baseRecipe } from './templates/base-recipe.ts';
export { type BuildPlan, debianDefaults, describeStep, type PlanStep } from './templates/build-plan.ts';
export { definitionLimits, parseDefinition } from './templates/definition.ts';
export {
  layerNameOf,
  type TemplateManifest,
  templateDefaults,
  templateIdOf,
  templateName,
} from './templates/manifest.ts';
export { TemplateStore, type TemplatesInUse } from './templates/template-store.ts';
export {
  buildTree,
  checkIds,
  defaultWorkspaceLimits,
  diffTrees,
  exportArchive,
  exportBundle,
  exportCheckout,
  type FileMode,
  fetchRemote,
  filesOf,
  GitProgram,
  importArchive,
  importBundle,
  isSafePath,
  judgeRemote,
  listHolds,
  makeRepository,
  mergeTrees,
  oneChunk,
  patchBetween,
  probeGit,
  pushToRemote,
  readCommit,
  readCommits,
  releaseHolds,
  removeLocks,
  removeRetries,
  requireGit,
  requireObjects,
  requireWhole,
  Staging,
  setHold,
  type TreeFile,
  type TreeStep,
  takeOverRepository,
  tidyObjects,
  treeOf,
  unsafe,
  verifyTree,
  type WorkspaceLimits,
  writeCommit,
} from './workspaces/index.ts';
