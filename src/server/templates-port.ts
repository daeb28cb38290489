/** What the server asks of control about templates, in the shapes of the routes. */
import type { Caller } from '../control/index.ts';
import type { BodyOf, BuildId, BuildLogItem, Conditions, QueryOf, ResultOf, routes } from '../protocol/index.ts';
import type { Shown } from './control-port.ts';

type Routes = typeof routes;
type Result<Name extends keyof Routes> = Promise<Shown<ResultOf<Routes[Name]>>>;
type LogQuery = QueryOf<Routes['readTemplateBuildLog']>;

export interface BuildAddress {
  readonly buildId: BuildId;
}

export interface TemplatesPort {
  build(caller: Caller, conditions: Conditions, body: BodyOf<Routes['buildTemplate']>): Result<'buildTemplate'>;
  uploadContext(bytes: AsyncIterable<Uint8Array>): Result<'uploadTemplateContext'>;
  getBuild(caller: Caller, address: BuildAddress): Result<'getTemplateBuild'>;
  /** The signal ends the reading and nothing else. */
  follow(
    caller: Caller,
    address: BuildAddress,
    query: LogQuery,
    signal: AbortSignal,
  ): AsyncIterable<Shown<BuildLogItem>>;
  log(caller: Caller, address: BuildAddress, query: LogQuery): Result<'readTemplateBuildLog'>;
  cancel(caller: Caller, address: BuildAddress, conditions: Conditions): Result<'cancelTemplateBuild'>;
  list(caller: Caller): Result<'listTemplates'>;
  get(caller: Caller, name: string): Result<'getTemplate'>;
  remove(caller: Caller, name: string, conditions: Conditions): Promise<void>;
}
