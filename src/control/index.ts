/** Decisions: no HTTP, no SQL, no processes. */
export type { KeptArchives } from './backups.ts';
export type { Caller } from './caller.ts';
export { type ControlSettings, defaultControlSettings } from './context.ts';
export { Control, type ControlOptions, type Metric } from './control.ts';
export { NodeDirectory } from './node-directory.ts';
export type { ExposedPort, ExposedPortWithToken, PreviewAdmission } from './ports.ts';
export { type FollowedItem, itemViewOf, type StartedItem } from './process-views.ts';
export type { Created } from './sandbox-creation.ts';
export type { LoadView } from './sandboxes.ts';
export type { Attachment } from './terminals.ts';
export type { Deliver, Delivery } from './webhooks.ts';
