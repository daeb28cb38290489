import { expect, test } from 'vitest';
import { newId, PlatformError, type SandboxState, type StateKind } from '../protocol/index.ts';
import { type EventKind, nextSandboxState, type SandboxEvent } from './lifecycle.ts';

const states: { [Kind in StateKind]: Extract<SandboxState, { kind: Kind }> } = {
  creating: { kind: 'creating', untilMs: 10 },
  running: { kind: 'running' },
  stopping: { kind: 'stopping', reason: 'expired', untilMs: 10 },
  stopped: { kind: 'stopped', reason: 'crashed', atMs: 5 },
  starting: { kind: 'starting', previous: 'crashed', untilMs: 10 },
  pausing: { kind: 'pausing', mode: 'memory', expiresAtMs: 100, untilMs: 10 },
  paused: { kind: 'paused', mode: 'memory', reason: 'requested', atMs: 5, leftMs: 95 },
  resuming: {
    kind: 'resuming',
    paused: { kind: 'paused', mode: 'memory', reason: 'requested', atMs: 5, leftMs: 95 },
    untilMs: 10,
  },
  restoring: {
    kind: 'restoring',
    checkpointId: newId('checkpoint'),
    before: { state: { kind: 'stopped', reason: 'expired', atMs: 5 }, generation: 1, expiresAtMs: null },
    untilMs: 10,
  },
  deleting: { kind: 'deleting', untilMs: 10 },
  failed: { kind: 'failed', why: 'no room' },
};

const events: { [Kind in EventKind]: Extract<SandboxEvent, { kind: Kind }> } = {
  confirmed: { kind: 'confirmed' },
  refused: { kind: 'refused', why: 'no room', atMs: 7 },
  stop: { kind: 'stop', reason: 'requested', untilMs: 20 },
  gone: { kind: 'gone', reason: 'lost', atMs: 7 },
  stayed: { kind: 'stayed' },
  found: { kind: 'found' },
  start: { kind: 'start', untilMs: 20 },
  pause: { kind: 'pause', mode: 'files', expiresAtMs: 100, untilMs: 20 },
  paused: { kind: 'paused', mode: 'memory', reason: 'expired', leftMs: null, atMs: 7 },
  resume: { kind: 'resume', untilMs: 20 },
  restore: {
    kind: 'restore',
    checkpointId: newId('checkpoint'),
    before: { state: { kind: 'running' }, generation: 1, expiresAtMs: null },
    untilMs: 20,
  },
  delete: { kind: 'delete', untilMs: 20 },
};

/** Every pair, decided. A new state or event does not compile until each pair is. */
const table: Record<StateKind, Record<EventKind, StateKind | 'refused'>> = {
  creating: {
    confirmed: 'running',
    refused: 'failed',
    stop: 'refused',
    gone: 'stopped',
    stayed: 'refused',
    found: 'refused',
    start: 'refused',
    pause: 'refused',
    paused: 'refused',
    resume: 'refused',
    restore: 'refused',
    delete: 'deleting',
  },
  running: {
    confirmed: 'refused',
    refused: 'refused',
    stop: 'stopping',
    gone: 'stopped',
    stayed: 'refused',
    found: 'refused',
    start: 'running',
    pause: 'pausing',
    paused: 'paused',
    resume: 'running',
    restore: 'restoring',
    delete: 'deleting',
  },
  stopping: {
    confirmed: 'refused',
    refused: 'refused',
    stop: 'stopping',
    gone: 'stopped',
    stayed: 'running',
    found: 'refused',
    start: 'refused',
    pause: 'refused',
    paused: 'refused',
    resume: 'refused',
    restore: 'refused',
    delete: 'deleting',
  },
  stopped: {
    confirmed: 'refused',
    refused: 'refused',
    stop: 'stopped',
    gone: 'stopped',
    stayed: 'refused',
    found: 'running',
    start: 'starting',
    pause: 'refused',
    paused: 'refused',
    resume: 'refused',
    restore: 'restoring',
    delete: 'deleting',
  },
  starting: {
    confirmed: 'running',
    refused: 'stopped',
    stop: 'refused',
    gone: 'stopped',
    stayed: 'refused',
    found: 'refused',
    start: 'refused',
    pause: 'refused',
    paused: 'refused',
    resume: 'refused',
    restore: 'refused',
    delete: 'deleting',
  },
  pausing: {
    confirmed: 'refused',
    refused: 'refused',
    stop: 'refused',
    gone: 'stopped',
    stayed: 'running',
    found: 'refused',
    start: 'refused',
    pause: 'pausing',
    paused: 'paused',
    resume: 'refused',
    restore: 'refused',
    delete: 'deleting',
  },
  paused: {
    confirmed: 'refused',
    refused: 'refused',
    stop: 'stopping',
    gone: 'stopped',
    stayed: 'refused',
    found: 'running',
    start: 'refused',
    pause: 'paused',
    paused: 'refused',
    resume: 'resuming',
    restore: 'restoring',
    delete: 'deleting',
  },
  resuming: {
    confirmed: 'running',
    refused: 'paused',
    stop: 'refused',
    gone: 'stopped',
    stayed: 'refused',
    found: 'refused',
    start: 'refused',
    pause: 'refused',
    paused: 'refused',
    resume: 'resuming',
    restore: 'refused',
    delete: 'deleting',
  },
  restoring: {
    confirmed: 'running',
    refused: 'stopped',
    stop: 'refused',
    gone: 'stopped',
    stayed: 'refused',
    found: 'refused',
    start: 'refused',
    pause: 'refused',
    paused: 'refused',
    resume: 'refused',
    restore: 'refused',
    delete: 'deleting',
  },
  deleting: {
    confirmed: 'refused',
    refused: 'refused',
    stop: 'refused',
    gone: 'refused',
    stayed: 'refused',
    found: 'refused',
    start: 'refused',
    pause: 'refused',
    paused: 'refused',
    resume: 'refused',
    restore: 'refused',
    delete: 'deleting',
  },
  failed: {
    confirmed: 'refused',
    refused: 'refused',
    stop: 'refused',
    gone: 'refused',
    stayed: 'refused',
    found: 'refused',
    start: 'refused',
    pause: 'refused',
    paused: 'refused',
    resume: 'refused',
    restore: 'refused',
    delete: 'deleting',
  },
};

for (const state of Object.keys(table) as StateKind[]) {
  for (const event of Object.keys(table[state]) as EventKind[]) {
    const wanted = table[state][event];
    test(`K14: ${state} and "${event}" make ${wanted}`, () => {
      if (wanted !== 'refused') {
        expect(nextSandboxState(states[state], events[event]).kind).toBe(wanted);
        return;
      }
      const refusal = (() => {
        try {
          return nextSandboxState(states[state], events[event]);
        } catch (error) {
          return error;
        }
      })();
      expect(refusal).toBeInstanceOf(PlatformError);
      expect(refusal).toMatchObject({ code: 'sandbox_wrong_state', details: { state } });
    });
  }
}

test('K14: K17: delete is accepted in every state', () => {
  for (const state of Object.keys(table) as StateKind[]) expect(table[state].delete).toBe('deleting');
});

test('the first reason of a stop stays', () => {
  expect(nextSandboxState(states.stopping, events.stop)).toBe(states.stopping);
  expect(nextSandboxState(states.stopping, events.gone)).toMatchObject({ kind: 'stopped', reason: 'expired' });
});

test('a start that fails keeps the earlier reason and says why', () => {
  expect(nextSandboxState(states.starting, events.refused)).toMatchObject({
    kind: 'stopped',
    reason: 'crashed',
    note: 'no room',
  });
});
