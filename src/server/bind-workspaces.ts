/** The routes of workspaces and of what sandboxes do with them, bound in one line each. */
import type { Caller } from '../control/index.ts';
import { type Conditions, routes, type SandboxId } from '../protocol/index.ts';
import { sendBytes } from './byte-answer.ts';
import type { Handle } from './route-binding.ts';
import type { WorkspacesPort } from './workspaces-port.ts';

const version = (view: { readonly version: number }) => view.version;
const bundle = { status: 200, headers: { 'Content-Type': 'application/x-git-bundle' } };
const tar = { status: 200, headers: { 'Content-Type': 'application/x-tar' } };
const patch = { status: 200, headers: { 'Content-Type': 'text/x-patch' } };
const bytes = { status: 200, headers: { 'Content-Type': 'application/octet-stream' } };

export function bindWorkspaces(handle: Handle, control: WorkspacesPort): void {
  const { workspaces, versions } = control;
  handle(routes.createWorkspace, ({ caller, conditions, body }) => workspaces.create(caller, conditions, body), {
    etag: version,
  });
  handle(routes.listWorkspaces, ({ caller, query }) => workspaces.list(caller, query));
  handle(routes.getWorkspace, ({ caller, params }) => workspaces.get(caller, params.workspace), { etag: version });
  handle(routes.deleteWorkspace, ({ caller, params, conditions }) =>
    workspaces.delete(caller, params.workspace, conditions),
  );
  handle(routes.listWorkspaceVersions, ({ caller, params, query }) =>
    workspaces.versions(caller, params.workspace, query),
  );
  handle(routes.getWorkspaceVersion, ({ caller, params }) =>
    workspaces.version(caller, params.workspace, params.number),
  );
  handle(routes.diffWorkspace, ({ caller, params, query }) => workspaces.diff(caller, params.workspace, query));
  handle(routes.patchWorkspace, async ({ caller, params, query, exchange }) => {
    const found = await workspaces.patch(caller, params.workspace, query, exchange.ending);
    return await sendBytes(exchange, found.bytes, patch);
  });
  handle(routes.readWorkspaceBlob, async ({ caller, params, exchange }) => {
    const found = await workspaces.blob(caller, params.workspace, params.blob, exchange.ending);
    return await sendBytes(exchange, found.bytes, bytes);
  });
  handle(routes.revertWorkspace, ({ caller, params, conditions, body }) =>
    workspaces.revert(caller, params.workspace, conditions, body),
  );
  handle(routes.importWorkspace, ({ caller, params, conditions, query, content, exchange }) =>
    versions.importBytes(caller, params.workspace, conditions, query, content, exchange.disconnected),
  );
  handle(routes.importWorkspaceRemote, ({ caller, params, conditions, body, exchange }) =>
    versions.importRemote(caller, params.workspace, conditions, body, exchange.disconnected),
  );
  handle(routes.pushWorkspace, ({ caller, params, conditions, body, exchange }) =>
    versions.push(caller, params.workspace, conditions, body, exchange.ending),
  );
  handle(routes.exportWorkspace, async ({ caller, params, query, exchange }) => {
    const found = await versions.export(caller, params.workspace, query, exchange.ending);
    return await sendBytes(exchange, found.bytes, query.kind === 'bundle' ? bundle : tar);
  });
  bindAttachments(handle, control);
}

function bindAttachments(handle: Handle, { attachments, attachmentChanges: changes }: WorkspacesPort): void {
  handle(routes.listAttachments, ({ caller, params }) => attachments.list(caller, params.sandboxId));
  // A caller that goes away detaches: what was begun in a sandbox is finished.
  handle(routes.attachWorkspace, ({ caller, params, conditions, body }) =>
    attachments.attach(caller, params.sandboxId, conditions, body),
  );
  handle(routes.detachWorkspace, ({ query, ...request }) => attachments.detach(askedOf(request), query));
  handle(routes.diffAttachment, ({ body, exchange, ...request }) =>
    changes.diff(askedOf(request), body, exchange.ending),
  );
  handle(routes.patchAttachment, async ({ exchange, ...request }) => {
    const found = await changes.patch(askedOf(request), exchange.ending);
    return await sendBytes(exchange, found.bytes, patch);
  });
  handle(routes.commitAttachment, ({ body, exchange, ...request }) =>
    changes.commit(askedOf(request), body, exchange.ending),
  );
  handle(routes.updateAttachment, (request) => changes.update(askedOf(request)));
  handle(routes.dropAttachment, (request) => attachments.drop(askedOf(request)));
}

function askedOf(request: {
  readonly caller: Caller;
  readonly params: { readonly sandboxId: SandboxId; readonly workspace: string };
  readonly conditions: Conditions;
}) {
  const { caller, params, conditions } = request;
  return { caller, sandboxId: params.sandboxId, workspace: params.workspace, conditions };
}
