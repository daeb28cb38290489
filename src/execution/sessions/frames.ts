/** The RUN of a session, and of what happens in one, as native/PROTOCOL.md has them. */
import { field, textField, u32, u64 } from '../../base/index.ts';
import { journalFields, type RunHead, runFlags, runFrameOf } from '../init-protocol.ts';

export function sessionFrame(
  head: RunHead,
  session: {
    readonly shell: string;
    readonly env: Readonly<Record<string, string>>;
    readonly cwd: string;
    readonly user: string | null;
  },
): Buffer {
  return runFrameOf(
    head,
    runFlags.session,
    textField(2, session.shell),
    ...Object.entries(session.env).map(([name, value]) => textField(3, `${name}=${value}`)),
    textField(4, session.cwd),
    ...(session.user === null ? [] : [textField(5, session.user)]),
  );
}

export interface InSession {
  readonly session: string;
  readonly env: Readonly<Record<string, string | null>>;
  readonly cwd: string | null;
  readonly stdinOpen: boolean;
  readonly timeoutMs: number | null;
}

export function textFrame(head: RunHead, run: InSession & { readonly text: string }): Buffer {
  return runFrameOf(head, inputFlag(run), ...inSessionFields(run), field(12, Buffer.from(run.text)));
}

export function processFrame(
  head: RunHead,
  run: InSession & {
    readonly text: string;
    readonly graceMs: number;
    readonly keepBytes: number;
    readonly detach: boolean;
  },
): Buffer {
  return runFrameOf(
    head,
    runFlags.fork | inputFlag(run) | (run.detach ? runFlags.detach : 0),
    ...inSessionFields(run),
    field(8, u32(run.graceMs)),
    field(12, Buffer.from(run.text)),
    ...journalFields({ name: head.run, limitBytes: run.keepBytes }),
  );
}

export function keepVariablesFrame(head: RunHead, run: Pick<InSession, 'session' | 'env'>): Buffer {
  return runFrameOf(head, runFlags.keepVariables, textField(15, run.session), ...variableFields(run.env));
}

function inputFlag(run: InSession): number {
  return run.stdinOpen ? runFlags.stdinOpen : 0;
}

function inSessionFields(run: InSession): Buffer[] {
  return [
    textField(15, run.session),
    ...variableFields(run.env),
    ...(run.cwd === null ? [] : [textField(4, run.cwd)]),
    ...(run.timeoutMs === null ? [] : [field(7, u64(run.timeoutMs))]),
  ];
}

function variableFields(env: Readonly<Record<string, string | null>>): Buffer[] {
  return Object.entries(env).map(([name, value]) =>
    value === null ? textField(16, name) : textField(3, `${name}=${value}`),
  );
}
