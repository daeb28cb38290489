/** HTTP in and out: binds routes to control, streams. */
export type { ControlPort, Metric } from './control-port.ts';
export { createHttpServer, type HttpServer, type HttpServerOptions } from './create-server.ts';
export { type OpenApiDocument, openApiDocument } from './open-api.ts';
export { parsePreviewDomain } from './previews/preview-addresses.ts';
