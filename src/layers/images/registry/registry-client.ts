/** One repository of a registry, by the v2 API: manifests and blobs, read only. What comes back is not verified here. */
import { isPlatformError, PlatformError } from '../../../protocol/index.ts';
import type { RemoteRules } from '../../remote-rules.ts';
import type { RegistryCredentials } from '../image-source.ts';
import { documentBytesMax, indexMediaTypes, manifestMediaTypes } from '../manifests.ts';
import { authorize } from './authorization.ts';
import { type GetAnswer, httpGet, readBody, unavailable } from './http-get.ts';
import { type ImageReference, isLoopback } from './reference.ts';

export interface RegistryClientOptions {
  readonly reference: ImageReference;
  readonly credentials: RegistryCredentials | undefined;
  readonly insecure: boolean;
  readonly rules: RemoteRules;
  readonly signal: AbortSignal | undefined;
}

export class RegistryClient {
  readonly #options: RegistryClientOptions;
  readonly #registry: URL;
  /** What the last challenge was answered with. */
  #authorization: string | undefined;

  private constructor(registry: URL, options: RegistryClientOptions) {
    this.#registry = registry;
    this.#options = options;
  }

  /** HTTPS; plain HTTP only where it may be and nothing there speaks HTTPS. */
  static async open(options: RegistryClientOptions): Promise<RegistryClient> {
    const { host } = options.reference;
    const secure = new RegistryClient(new URL(`https://${host}`), options);
    if (!options.insecure && !isLoopback(host)) return secure;
    try {
      (await secure.#getOnce('/v2/', {})).discard();
      return secure;
    } catch (error) {
      if (!isPlatformError(error, 'registry_unavailable')) throw error;
      return new RegistryClient(new URL(`http://${host}`), options);
    }
  }

  /** By tag or digest. `contentDigest` is what the registry says it is. */
  async getManifest(version: string): Promise<{ readonly bytes: Buffer; readonly contentDigest: string | undefined }> {
    const accept = [...manifestMediaTypes, ...indexMediaTypes].join(', ');
    const answer = await this.#get(`/v2/${this.#options.reference.repository}/manifests/${version}`, { accept });
    const bytes = await readBody(answer, { limitBytes: documentBytesMax });
    return { bytes, contentDigest: answer.header('docker-content-digest') };
  }

  async *getBlob(digest: string): AsyncGenerator<Buffer, void> {
    const answer = await this.#get(`/v2/${this.#options.reference.repository}/blobs/${digest}`, {});
    yield* answer.body();
  }

  async #get(path: string, headers: Readonly<Record<string, string>>): Promise<GetAnswer> {
    let answer = await this.#getOnce(path, headers);
    if (answer.status === 401) {
      answer.discard();
      const { reference, credentials, rules, signal } = this.#options;
      this.#authorization = await authorize(answer.header('www-authenticate'), {
        registry: this.#registry,
        repository: reference.repository,
        credentials,
        rules,
        signal,
      });
      answer = await this.#getOnce(path, headers);
    }
    if (answer.status === 200) return answer;
    answer.discard();
    throw this.#refusalOf(answer.status);
  }

  #getOnce(path: string, headers: Readonly<Record<string, string>>): Promise<GetAnswer> {
    const { rules, signal } = this.#options;
    return httpGet(new URL(path, this.#registry), {
      rules,
      signal,
      headersFor: (url) =>
        url.origin === this.#registry.origin && this.#authorization !== undefined
          ? { ...headers, authorization: this.#authorization }
          : headers,
    });
  }

  #refusalOf(status: number): PlatformError {
    const { repository, version } = this.#options.reference;
    const image = `${this.#registry.host}/${repository} (${version})`;
    if (status === 404) return new PlatformError('image_not_found', `There is no image ${image}.`);
    if (status === 401 || status === 403)
      return new PlatformError('registry_denied', `The registry does not give ${image}.`);
    return unavailable(this.#registry, `it answers ${status}`);
  }
}
