/** OCI images, from an archive, a layout or a registry, as one tree on disk. */
export type { ImageConfig } from './image-config.ts';
export { defaultImageLimits, type ImageLimits } from './image-limits.ts';
export { type ImageSource, parseImageSource, type RegistryCredentials } from './image-source.ts';
export {
  type ImageProgress,
  type UnpackedImage,
  type UnpackImageOptions,
  unpackImage,
} from './unpack-image.ts';
