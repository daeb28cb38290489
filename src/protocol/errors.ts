/**
 * Every refusal a caller can see, and the one class that carries it.
 *
 * A released code keeps its meaning; a new situation gets a new code. `retry` tells a client what may be done with the same
 * request: `never` (it would be refused again), `backoff` (nothing was changed that the details do not tell, later it may pass), `unknown` (it may or
 * may not have taken effect: repeat it under the same idempotency key, or look first).
 */
import { planErrors } from './plan-errors.ts';
import { workspaceErrors } from './workspace-errors.ts';

export interface ErrorSpec {
  readonly status: number;
  readonly retry: 'never' | 'backoff' | 'unknown';
  readonly meaning: string;
}

export const errorCatalog = {
  ...workspaceErrors,
  ...planErrors,
  invalid_request: { status: 400, retry: 'never', meaning: 'The request does not match its schema.' },
  invalid_command: { status: 400, retry: 'never', meaning: 'The command is empty or cannot be one.' },
  cwd_not_usable: {
    status: 400,
    retry: 'never',
    meaning: 'The working directory does not exist or cannot be entered; nothing ran.',
  },
  user_not_usable: { status: 400, retry: 'never', meaning: 'No such user in the sandbox; nothing ran.' },
  template_not_found: { status: 404, retry: 'never', meaning: 'No such template.' },
  template_not_built: {
    status: 409,
    retry: 'never',
    meaning: 'The template comes with the platform but is not built on this node yet; the details name the command.',
  },
  template_start_failed: {
    status: 422,
    retry: 'never',
    meaning: 'The start command of the template ended or was not ready in time; the sandbox was taken back.',
  },
  build_not_found: { status: 404, retry: 'never', meaning: 'No such build of a template, or it is no longer kept.' },
  invalid_definition: {
    status: 400,
    retry: 'never',
    meaning: 'The definition of a template cannot be used; the details have line and column.',
  },
  packages_unavailable: {
    status: 422,
    retry: 'never',
    meaning: 'The packages of a template could not be found, verified or brought from the sources of the machine.',
  },
  build_step_failed: {
    status: 422,
    retry: 'never',
    meaning: 'A step of a template ended with a failure; the log of the build tells it. Nothing of the build is left.',
  },
  build_cancelled: {
    status: 409,
    retry: 'never',
    meaning: 'The build was cancelled, or its node ended; nothing is left.',
  },
  image_not_found: { status: 404, retry: 'never', meaning: 'There is no such image where it was looked for.' },
  image_refused: {
    status: 422,
    retry: 'never',
    meaning: 'The image is malformed, for another platform, or holds what is never unpacked; nothing of it is used.',
  },
  image_too_large: { status: 413, retry: 'never', meaning: 'The image is beyond a limit; nothing of it is used.' },
  registry_denied: {
    status: 403,
    retry: 'never',
    meaning: 'The registry does not give this image to these credentials, or may not be asked this way.',
  },
  registry_unavailable: {
    status: 502,
    retry: 'backoff',
    meaning: 'The registry is out of reach or does not answer as one; nothing was changed.',
  },
  unauthenticated: { status: 401, retry: 'never', meaning: 'The key is missing, unknown, expired or revoked.' },
  forbidden: { status: 403, retry: 'never', meaning: 'The key is good, but its scopes do not allow this.' },
  route_not_found: { status: 404, retry: 'never', meaning: 'There is no such path in this API.' },
  method_not_allowed: { status: 405, retry: 'never', meaning: 'The path exists, but not with this method.' },
  sandbox_not_found: { status: 404, retry: 'never', meaning: 'No such sandbox in this team.' },
  operation_not_found: {
    status: 404,
    retry: 'never',
    meaning: 'No such operation in this team, or it is no longer kept.',
  },
  lease_not_found: { status: 404, retry: 'never', meaning: 'No such lease in this team, or it has ended.' },
  key_not_found: { status: 404, retry: 'never', meaning: 'No such key in this team.' },
  user_not_found: { status: 404, retry: 'never', meaning: 'No such user in this team.' },
  team_not_found: { status: 404, retry: 'never', meaning: 'No such team.' },
  process_not_found: {
    status: 404,
    retry: 'never',
    meaning: 'No such process in the present life of the sandbox, or it is no longer kept.',
  },
  process_not_startable: {
    status: 400,
    retry: 'never',
    meaning: 'The program does not exist or cannot be executed; nothing ran and nothing is kept.',
  },
  process_exists: { status: 409, retry: 'never', meaning: 'Another process of this sandbox has this name.' },
  process_running: {
    status: 409,
    retry: 'never',
    meaning: 'Something of the process still runs; nothing was removed.',
  },
  output_ended: {
    status: 409,
    retry: 'never',
    meaning: 'The process ended without what was waited for (said by the client, never by a server).',
  },
  wait_timeout: {
    status: 408,
    retry: 'backoff',
    meaning: 'It did not happen within the time that the caller would wait (said by the client, never by a server).',
  },
  session_not_found: {
    status: 404,
    retry: 'never',
    meaning: 'No such session in the present life of the sandbox, or it is no longer kept. Create it first.',
  },
  session_exists: {
    status: 409,
    retry: 'never',
    meaning: 'A session with this name lives. Use it, delete it, or take another name.',
  },
  session_terminated: {
    status: 410,
    retry: 'never',
    meaning:
      'The shell of the session has ended, as the details tell; nothing ran. Creating it again begins a new one.',
  },
  session_queue_timeout: {
    status: 408,
    retry: 'backoff',
    meaning: 'The session was busy for longer than the caller would wait; nothing ran.',
  },
  session_shell_not_usable: {
    status: 422,
    retry: 'never',
    meaning: 'The shell cannot serve as a session: it is missing, or it is no bash that can load what a session needs.',
  },
  stdin_closed: { status: 409, retry: 'never', meaning: 'The standard input of the process is closed.' },
  terminal_not_found: {
    status: 404,
    retry: 'never',
    meaning: 'No such terminal in the present life of the sandbox, or it has ended and is no longer known.',
  },
  upgrade_required: { status: 426, retry: 'never', meaning: 'This path is a WebSocket: ask for an upgrade.' },
  webhook_not_found: { status: 404, retry: 'never', meaning: 'No such webhook in this team.' },
  sandbox_wrong_state: {
    status: 409,
    retry: 'never',
    meaning: "Not possible in the sandbox's current state, which the details name.",
  },
  sandbox_paused: {
    status: 409,
    retry: 'never',
    meaning: 'The sandbox is paused; resume it first, or let traffic do so with `autoResume`.',
  },
  checkpoint_not_found: { status: 404, retry: 'never', meaning: 'No such checkpoint in this team.' },
  checkpoint_not_usable: {
    status: 409,
    retry: 'never',
    meaning: 'The checkpoint is still being made, is being deleted, or was lost by its node.',
  },
  pause_unsupported: {
    status: 400,
    retry: 'never',
    meaning: 'Sandboxes cannot be paused this way here; the message says why.',
  },
  backup_not_found: { status: 404, retry: 'never', meaning: 'No such backup in this team, or it has expired.' },
  name_taken: { status: 409, retry: 'never', meaning: 'Another one of this kind in the team has this name.' },
  stale_generation: {
    status: 409,
    retry: 'never',
    meaning: 'Meant for an earlier life of the sandbox; nothing was done.',
  },
  version_mismatch: {
    status: 412,
    retry: 'never',
    meaning: 'The record has another version than expected; the details tell it. Nothing was changed.',
  },
  idempotency_key_reused: {
    status: 422,
    retry: 'never',
    meaning: 'The idempotency key was used with another request.',
  },
  operation_in_doubt: {
    status: 409,
    retry: 'unknown',
    meaning: 'The operation under this key was interrupted and cannot be settled; it is not done again.',
  },
  lease_held: {
    status: 423,
    retry: 'backoff',
    meaning: 'Somebody holds a lease on it; the details name the holder. Nothing was done.',
  },
  lease_lost: {
    status: 409,
    retry: 'never',
    meaning: 'The lease token given is not the current one; nothing was done.',
  },
  lease_wait_timeout: {
    status: 408,
    retry: 'backoff',
    meaning: 'The lease was not granted within the time the caller would wait.',
  },
  payload_too_large: { status: 413, retry: 'never', meaning: 'The request body is larger than this route takes.' },
  git_failed: {
    status: 422,
    retry: 'never',
    meaning: 'git refused or failed in the sandbox; `details.reason` says which failure it is (said by the client).',
  },
  file_not_found: { status: 404, retry: 'never', meaning: 'There is no such file or directory in the sandbox.' },
  file_exists: { status: 409, retry: 'never', meaning: 'Something is at this path already; nothing was changed.' },
  not_a_directory: { status: 409, retry: 'never', meaning: 'A part of the path, or all of it, is no directory.' },
  is_a_directory: { status: 409, retry: 'never', meaning: 'The path is a directory, and this needs a file.' },
  directory_not_empty: {
    status: 409,
    retry: 'never',
    meaning: 'The directory is not empty; `recursive` removes what is in it. Nothing was changed.',
  },
  file_not_usable: {
    status: 422,
    retry: 'never',
    meaning: 'This cannot be done with this path: the message says why (a FIFO, a loop of symlinks, too long a name).',
  },
  file_changed: {
    status: 412,
    retry: 'never',
    meaning: 'The file is not the one that was expected. Nothing was changed.',
  },
  permission_denied: {
    status: 403,
    retry: 'never',
    meaning: 'The user in the sandbox may not do this, or that part of it is read-only.',
  },
  file_storage_full: {
    status: 507,
    retry: 'never',
    meaning: 'There is no space left for the files of the sandbox. A file that was to be replaced is as it was.',
  },
  range_not_satisfiable: {
    status: 416,
    retry: 'never',
    meaning: 'The range asked for is behind the end of the file; the details tell its size.',
  },
  port_not_open: {
    status: 502,
    retry: 'backoff',
    meaning: 'Nothing in the sandbox answers at this port now.',
  },
  port_not_exposed: { status: 404, retry: 'never', meaning: 'There is no such preview: the port is not exposed.' },
  preview_token_invalid: {
    status: 401,
    retry: 'never',
    meaning: 'The preview needs its token; none was given, or it was rotated or revoked.',
  },
  preview_failed: {
    status: 502,
    retry: 'unknown',
    meaning: 'The service in the sandbox broke off, or what it answered is not HTTP.',
  },
  preview_timeout: { status: 504, retry: 'unknown', meaning: 'The service in the sandbox did not answer in time.' },
  output_dropped: { status: 410, retry: 'never', meaning: 'What was asked for is no longer kept.' },
  limit_exceeded: {
    status: 429,
    retry: 'backoff',
    meaning: 'A limit is reached; the message names it. Nothing was done.',
  },
  insufficient_storage: {
    status: 507,
    retry: 'backoff',
    meaning:
      'The disk is full. Nothing was changed, unless `details.state` tells what is left: a restore that failed when the earlier life had ended leaves the sandbox stopped on its earlier files.',
  },
  node_unavailable: { status: 503, retry: 'backoff', meaning: 'The node is out of reach; nothing was changed.' },
  sandbox_unavailable: { status: 503, retry: 'backoff', meaning: 'The sandbox does not answer; nothing was started.' },
  shutting_down: { status: 503, retry: 'backoff', meaning: 'The server is stopping; nothing was changed.' },
  outcome_unknown: {
    status: 502,
    retry: 'unknown',
    meaning: 'The connection to the node or sandbox was lost midway: it may or may not have taken effect.',
  },
  isolation_failed: {
    status: 500,
    retry: 'never',
    meaning: 'A guard could not be set on this machine, so nothing was started. `atoll doctor` tells more.',
  },
  network_unavailable: {
    status: 501,
    retry: 'never',
    meaning:
      'The machine cannot give a sandbox this network; nothing was changed, unless `details.state` tells what is left. The message says what is missing; `network: {mode: "none"}` needs nothing.',
  },
  freeze_failed: {
    status: 503,
    retry: 'backoff',
    meaning:
      'The commands of the sandbox could not be made to stand still in time; they go on, and nothing was changed.',
  },
  layer_not_found: { status: 404, retry: 'never', meaning: 'No such layer, or no such writable layer, on this node.' },
  layer_in_use: {
    status: 409,
    retry: 'never',
    meaning: 'Something still stands on this layer; the details name it. Nothing was removed.',
  },
  layer_damaged: {
    status: 500,
    retry: 'never',
    meaning: 'The layer on disk is not what was written; it is put aside and not used.',
  },
  layer_incompatible: {
    status: 409,
    retry: 'never',
    meaning: 'The layers stand on another template than the one at hand (a host whose packages have changed).',
  },
  storage_unsupported: {
    status: 501,
    retry: 'never',
    meaning: 'The storage of this node cannot do this; the message says why. Nothing was changed.',
  },
  storage_failed: {
    status: 500,
    retry: 'never',
    meaning: "The storage of this node's layers failed; the message says where. Nothing half-made is left in use.",
  },
  checkout_unusable: {
    status: 400,
    retry: 'never',
    meaning: 'The directory cannot be used as a checkout (said by the client, never by a server).',
  },
  checkout_without_sandbox: {
    status: 404,
    retry: 'never',
    meaning: 'This checkout has no sandbox yet, and the command does not make one (said by the client).',
  },
  checkout_ambiguous: {
    status: 409,
    retry: 'never',
    meaning: 'Several sandboxes belong to this checkout; one must be named (said by the client).',
  },
  checkout_busy: {
    status: 423,
    retry: 'backoff',
    meaning: 'Another process on this machine holds the cache of checkouts (said by the client).',
  },
  checkout_cache_unusable: {
    status: 500,
    retry: 'never',
    meaning: 'The cache of checkouts on this machine cannot be used; it was not touched (said by the client).',
  },
  definition_invalid: {
    status: 400,
    retry: 'never',
    meaning: 'The definition of the sandbox (atoll.yml) is not valid (said by the client).',
  },
  setup_failed: {
    status: 409,
    retry: 'never',
    meaning: 'A set-up step of the definition failed; the command did not run (said by the client).',
  },
  server_unreachable: {
    status: 503,
    retry: 'backoff',
    meaning: 'No server answers at this address (said by the client, never by a server).',
  },
  sync_not_possible: {
    status: 422,
    retry: 'never',
    meaning: 'This checkout or sandbox cannot be synced as it is; the message says what to do (said by the client).',
  },
  sync_failed: {
    status: 502,
    retry: 'backoff',
    meaning: 'A sync broke off; neither side is half-changed, and a repeat goes on (said by the client).',
  },
  sync_limit_exceeded: {
    status: 413,
    retry: 'never',
    meaning: 'More is to be synced than the limits allow; the details name the biggest paths (said by the client).',
  },
  sync_unsafe: {
    status: 422,
    retry: 'never',
    meaning: 'What came from the sandbox could harm the checkout and was refused whole (said by the client).',
  },
  undo_nothing: {
    status: 404,
    retry: 'never',
    meaning: 'No change of ours is left to take back in this checkout (said by the client).',
  },
  undo_refused: {
    status: 409,
    retry: 'never',
    meaning:
      'What would be taken back was edited since; the details name the paths, nothing was changed (said by the client).',
  },
  internal: { status: 500, retry: 'never', meaning: 'A bug here; the request id finds it in the log.' },
} as const satisfies Record<string, ErrorSpec>;

export type ErrorCode = keyof typeof errorCatalog;

export function isErrorCode(text: string): text is ErrorCode {
  return Object.hasOwn(errorCatalog, text);
}

export interface PlatformErrorOptions {
  readonly details?: Readonly<Record<string, unknown>>;
  readonly cause?: unknown;
  /** Set on the client from the answer; the server adds its own when it answers. */
  readonly requestId?: string;
}

/** A refusal. Callers branch on `code` and nothing else. */
export class PlatformError extends Error {
  override readonly name = 'PlatformError';
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, unknown>>;
  readonly requestId: string | undefined;

  constructor(code: ErrorCode, message: string, options: PlatformErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details ?? {};
    this.requestId = options.requestId;
  }

  get status(): number {
    return errorCatalog[this.code].status;
  }

  get retry(): ErrorSpec['retry'] {
    return errorCatalog[this.code].retry;
  }
}

/** How a refusal stands on the wire. */
export interface ErrorBody {
  readonly error: {
    readonly code: string;
    readonly message: string;
    readonly details: Readonly<Record<string, unknown>>;
    readonly requestId: string;
  };
}

export function isPlatformError(error: unknown, ...codes: readonly ErrorCode[]): error is PlatformError {
  return error instanceof PlatformError && (codes.length === 0 || codes.includes(error.code));
}
