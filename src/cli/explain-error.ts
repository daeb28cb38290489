/** What a person reads when something failed: what, why, what to do. And what a program reads, with `--json`. */
import { type ErrorCode, errorCatalog, isPlatformError } from '../protocol/index.ts';
import { CliError } from './cli-error.ts';
import { exitCodeOf, exitCodes } from './exit-codes.ts';

export interface Explanation {
  readonly exitCode: number;
  /** On stderr. Empty: there is nothing to add. */
  readonly text: string;
  readonly json: { readonly error: Readonly<Record<string, unknown>> };
}

/** What to do about it, where that is not plain from the message. */
const hints: Partial<Record<ErrorCode, string>> = {
  checkout_unusable: 'Go to a directory of the checkout, or name a sandbox: atoll exec SANDBOX -- …',
  checkout_without_sandbox: 'Make one with "atoll start" or "atoll exec -- COMMAND", or name a sandbox.',
  checkout_ambiguous: '"atoll ls --here" shows them; "atoll start --use ID" chooses one, "atoll rm ID" ends one.',
  checkout_busy: 'Wait for it, or end that process.',
  checkout_cache_unusable: 'Move the file away, or set ATOLL_STATE to another folder.',
  definition_invalid: 'Correct that line; docs/checkout.md tells what may stand there.',
  setup_failed: 'Correct the step in atoll.yml; the next command begins with a new sandbox.',
  server_unreachable: 'Start one with "atoll serve", or say where it is with --url or ATOLL_URL.',
  unauthenticated: 'Give a key with --key or ATOLL_API_KEY; "atoll keys create" makes one.',
  forbidden: 'Use a key with that scope; "atoll keys create --scope …" makes one.',
  sandbox_not_found: '"atoll ls" shows the sandboxes of this team.',
  sandbox_paused: '"atoll resume SANDBOX" lets it go on.',
  name_taken: 'Choose another name, or use the one that is there; "atoll create NAME --get" does that by itself.',
  sandbox_wrong_state: '"atoll info SANDBOX" shows its state; "atoll start SANDBOX" starts a stopped one.',
  process_not_found: '"atoll ps SANDBOX" shows what runs, and what has ended and is still kept.',
  process_not_startable: 'The sandbox has no such program; a set-up step in atoll.yml can install it.',
  session_not_found: '"atoll session ls SANDBOX" shows its sessions; "atoll session create SANDBOX NAME" makes one.',
  session_exists: 'Use it with "atoll session exec SANDBOX NAME -- …", or end it with "atoll session rm SANDBOX NAME".',
  session_terminated: '"atoll session create SANDBOX NAME" begins a new shell under the same name.',
  session_queue_timeout: '"atoll session ls SANDBOX" shows what is busy; wait longer, or use another session.',
  session_shell_not_usable: 'Leave --shell out to use the bash of the sandbox.',
  lease_held:
    '"atoll lease ls" shows who holds it; wait with --wait 5m in a checkout, or with "atoll lease acquire SANDBOX --wait 5m".',
  lease_lost: 'Acquire the lease again and use its new token.',
  outcome_unknown: 'Look first, or repeat it with the same --idempotency-key.',
  operation_in_doubt: 'Look at what it acted on; "atoll operations key:KEY" tells what is known.',
  isolation_failed: '"atoll doctor" tells what this machine lacks and how to fix it.',
  insufficient_storage: 'Free some space in the data directory, then try again.',
  template_not_found: 'The template "host" is always there; "atoll template ls" lists the others.',
  template_not_built: 'Build it with "atoll template build base"; it takes about a minute.',
  plan_not_found: '"atoll plan ls" shows the plans of this team.',
  registry_denied: 'Correct the name, or let the operator allow the registry (docs/images.md).',
  workspace_not_found:
    '"atoll workspace ls" shows the workspaces of this team, "atoll workspace log NAME" its versions.',
  workspace_conflict:
    'Look with "atoll workspace diff SANDBOX NAME" at what the sandbox changed; change it there, or drop it and update.',
  workspace_in_use: '"atoll workspace info NAME" shows which; "atoll workspace detach SANDBOX NAME" ends that.',
  internal: 'The request id finds the cause in the log of the server.',
};

export function explainError(error: unknown): Explanation {
  if (isPlatformError(error)) {
    const { code, message, details, requestId } = error;
    const hint = hints[code] ?? errorCatalog[code].meaning;
    const origin = requestId === undefined ? code : `${code}, ${requestId}`;
    return {
      exitCode: exitCodeOf[code],
      text: `atoll: ${message}\n  ${hint}\n  (${origin})\n`,
      json: { error: { code, message, details, ...(requestId !== undefined && { requestId }) } },
    };
  }
  if (error instanceof CliError) return explained(error, error.exitCode, error.hint);
  if (isStartError(error)) return explained(error, exitCodes.notConfigured, '');
  if (error instanceof Error && error.name === 'AbortError') {
    return {
      exitCode: exitCodes.interrupted,
      text: '',
      json: { error: { code: 'interrupted', message: 'Interrupted.' } },
    };
  }
  const message = error instanceof Error ? error.message : String(error);
  return {
    exitCode: exitCodes.bug,
    text: `atoll: ${error instanceof Error ? (error.stack ?? message) : message}\n  This is a bug in atoll.\n`,
    json: { error: { code: 'bug', message } },
  };
}

function explained(error: { readonly message: string; readonly code: string }, exitCode: number, hint: string) {
  const { code, message } = error;
  return {
    exitCode,
    text: `atoll: ${message}\n${hint === '' ? '' : `  ${hint}\n`}`,
    json: { error: { code, message } },
  };
}

/** Of `app`, known by its name: loading `app` only to ask would load the whole platform. */
function isStartError(error: unknown): error is Error & { readonly code: string } {
  return (
    error instanceof Error && error.name === 'StartError' && typeof (error as { code?: unknown }).code === 'string'
  );
}
