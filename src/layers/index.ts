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
