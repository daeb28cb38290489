/** Records for tests of what uses the store: whole and plausible, with what matters to the test given. */
import { newId, noNetwork } from '../../src/protocol/index.ts';
import type {
  AttachmentRecord,
  EventRecord,
  ExposureRecord,
  KeyRecord,
  LeaseHolder,
  OperationRecord,
  SandboxRecord,
  WebhookRecord,
  WorkspaceRecord,
  WorkspaceVersionRecord,
} from '../../src/store/index.ts';

export function sandboxRecord(given: Partial<SandboxRecord> = {}): SandboxRecord {
  return {
    id: newId('sandbox'),
    teamId: newId('team'),
    nodeId: newId('node'),
    name: null,
    spec: {
      template: 'host',
      limits: { memoryBytes: 2 ** 30, cpuMillis: 1000, processes: 512, diskBytes: null },
      env: { LANG: 'C.UTF-8' },
      noNewPrivileges: false,
    },
    state: { kind: 'running' },
    generation: 1,
    version: 1,
    metadata: {},
    metadataVersion: 1,
    expiresAtMs: null,
    leaseToken: 0,
    leaseHeld: false,
    network: noNetwork,
    onExpiry: 'stop',
    autoResume: false,
    keepCheckpoints: null,
    createdAtMs: 1_900_000_000_000,
    createdBy: newId('key'),
    userId: null,
    updatedAtMs: 1_900_000_000_000,
    ...given,
  };
}

export function operationRecord(given: Partial<OperationRecord> = {}): OperationRecord {
  return {
    id: newId('operation'),
    teamId: newId('team'),
    key: crypto.randomUUID(),
    kind: 'createSandbox',
    fingerprint: 'f'.repeat(64),
    subjectId: newId('sandbox'),
    serverRun: 'run-1',
    startedAtMs: 1_900_000_000_000,
    finishedAtMs: null,
    answer: null,
    ...given,
  };
}

export function keyRecord(given: Partial<KeyRecord> = {}): KeyRecord {
  return {
    id: newId('key'),
    teamId: newId('team'),
    userId: null,
    name: 'a key',
    hash: crypto.randomUUID(),
    scopes: ['sandboxes:read', 'sandboxes:write'],
    sandboxId: null,
    createdAtMs: 1_900_000_000_000,
    expiresAtMs: null,
    revokedAtMs: null,
    ...given,
  };
}

export function leaseHolder(given: Partial<LeaseHolder> = {}): LeaseHolder {
  return {
    leaseId: newId('lease'),
    name: 'somebody',
    reason: 'a deployment',
    keyId: newId('key'),
    ttlMs: 30_000,
    grantedAtMs: 1_900_000_000_000,
    bootId: 'boot-1',
    endsAtBootMs: 1_030_000,
    acknowledged: true,
    ...given,
  };
}

export function eventRecord(given: Partial<Omit<EventRecord, 'sequence'>> = {}): Omit<EventRecord, 'sequence'> {
  return {
    teamId: newId('team'),
    sandboxId: null,
    kind: 'sandbox.created',
    atMs: 1_900_000_000_000,
    data: {},
    ...given,
  };
}

export function webhookRecord(given: Partial<WebhookRecord> = {}): WebhookRecord {
  return {
    id: newId('webhook'),
    teamId: newId('team'),
    url: 'https://example.com/hook',
    secret: 's'.repeat(32),
    kinds: [],
    createdAtMs: 1_900_000_000_000,
    cursor: 0,
    failures: 0,
    nextAttemptAtMs: 0,
    lastError: null,
    ...given,
  };
}

export function exposureRecord(given: Partial<ExposureRecord> = {}): ExposureRecord {
  return {
    sandboxId: newId('sandbox'),
    port: 8080,
    isPublic: false,
    tokenId: newId('token'),
    tokenHash: 'e'.repeat(64),
    createdAtMs: 1_900_000_000_000,
    createdBy: newId('key'),
    ...given,
  };
}

export function workspaceRecord(given: Partial<WorkspaceRecord> = {}): WorkspaceRecord {
  return {
    id: newId('workspace'),
    teamId: newId('team'),
    nodeId: newId('node'),
    name: `workspace-${crypto.randomUUID()}`,
    state: 'ready',
    headNumber: 0,
    headCommit: null,
    version: 1,
    createdAtMs: 1_900_000_000_000,
    createdBy: newId('key'),
    updatedAtMs: 1_900_000_000_000,
    ...given,
  };
}

export function versionRecord(given: Partial<WorkspaceVersionRecord> = {}): WorkspaceVersionRecord {
  return {
    workspaceId: newId('workspace'),
    number: 1,
    commit: 'c'.repeat(40),
    kind: 'import',
    summary: 'The first',
    author: 'Somebody <somebody@example.com>',
    sandboxId: null,
    planId: null,
    createdAtMs: 1_900_000_000_000,
    createdBy: newId('key'),
    ...given,
  };
}

export function attachmentRecord(given: Partial<AttachmentRecord> = {}): AttachmentRecord {
  return {
    sandboxId: newId('sandbox'),
    workspaceId: newId('workspace'),
    teamId: newId('team'),
    path: '/workspace',
    baseNumber: 1,
    baseCommit: 'c'.repeat(40),
    baseline: null,
    attachedAtMs: 1_900_000_000_000,
    attachedBy: newId('key'),
    ...given,
  };
}
