import { LayerRig, rigKinds } from '../support/layer-rig.ts';
import { describeWith } from '../support/requires.ts';
import { layerStoreContract } from './layer-store.contract.ts';

for (const kind of rigKinds) {
  describeWith(...kind.needs)(`layers on ${kind.title}`, () => layerStoreContract(() => LayerRig.open(kind)));
}
