/** What a root file system is made of. */
export { HostTemplate, removeUnfinishedTemplates, type TemplateLayers } from './host-template.ts';
export type { DriverKind, ForkKind, Layer, LayerStore, LiveFreeze, Trees, Usage, Writable } from './layer-store.ts';
export { defaultPoolSizes, type PoolSizes } from './loop-pool.ts';
export { type OpenLayerStoreOptions, openLayerStore } from './open-layer-store.ts';
export { probeStorage, type StorageFinding, type StorageKind } from './probe-storage.ts';
