/**
 * What `atoll` exits with. `exec` and `lease run` pass the command's own exit code through; ours below follow sysexits(3)
 * where it has a word for it, and what failed also stands on stderr, or on stdout with `--json`.
 *
 *   0    done
 *   1    doctor: a required check failed
 *   2    usage: an unknown command, a missing or malformed argument
 *   65   the request was refused as it is
 *   66   what it names does not exist
 *   69   no server, or no node, can be reached; nothing was changed
 *   70   a bug in the server or here
 *   73   it conflicts with the present state: a name taken, a wrong state, another version, an earlier life
 *   74   nobody knows whether it took effect
 *   75   not now: a lease is held, a limit is reached, the disk is full, the server is stopping
 *   77   the key is missing, unknown, revoked, or may not do this
 *   78   not configured: no server or key known; the server cannot start as asked
 *   130  interrupted
 */
import type { ErrorCode } from '../protocol/index.ts';

export const exitCodes = {
  done: 0,
  checkFailed: 1,
  usage: 2,
  refused: 65,
  notFound: 66,
  unreachable: 69,
  bug: 70,
  conflict: 73,
  outcomeUnknown: 74,
  notNow: 75,
  notAllowed: 77,
  notConfigured: 78,
  interrupted: 130,
} as const;

/** Complete by type: a new error code does not compile until its exit code is decided. */
export const exitCodeOf: Readonly<Record<ErrorCode, number>> = {
  invalid_request: exitCodes.refused,
  invalid_command: exitCodes.refused,
  cwd_not_usable: exitCodes.refused,
  user_not_usable: exitCodes.refused,
  payload_too_large: exitCodes.refused,
  idempotency_key_reused: exitCodes.refused,
  route_not_found: exitCodes.bug,
  method_not_allowed: exitCodes.bug,
  template_not_found: exitCodes.notFound,
  sandbox_not_found: exitCodes.notFound,
  operation_not_found: exitCodes.notFound,
  lease_not_found: exitCodes.notFound,
  key_not_found: exitCodes.notFound,
  user_not_found: exitCodes.notFound,
  team_not_found: exitCodes.notFound,
  webhook_not_found: exitCodes.notFound,
  process_not_found: exitCodes.notFound,
  terminal_not_found: exitCodes.notFound,
  upgrade_required: exitCodes.bug,
  process_not_startable: exitCodes.refused,
  process_exists: exitCodes.conflict,
  process_running: exitCodes.conflict,
  session_not_found: exitCodes.notFound,
  session_exists: exitCodes.conflict,
  session_terminated: exitCodes.conflict,
  session_queue_timeout: exitCodes.notNow,
  session_shell_not_usable: exitCodes.refused,
  stdin_closed: exitCodes.conflict,
  output_ended: exitCodes.conflict,
  wait_timeout: exitCodes.notNow,
  git_failed: exitCodes.refused,
  file_not_found: exitCodes.notFound,
  file_exists: exitCodes.conflict,
  not_a_directory: exitCodes.conflict,
  is_a_directory: exitCodes.conflict,
  directory_not_empty: exitCodes.conflict,
  file_changed: exitCodes.conflict,
  file_not_usable: exitCodes.refused,
  range_not_satisfiable: exitCodes.refused,
  permission_denied: exitCodes.notAllowed,
  file_storage_full: exitCodes.notNow,
  port_not_open: exitCodes.unreachable,
  port_not_exposed: exitCodes.notFound,
  preview_token_invalid: exitCodes.notAllowed,
  preview_failed: exitCodes.outcomeUnknown,
  preview_timeout: exitCodes.outcomeUnknown,
  output_dropped: exitCodes.notFound,
  unauthenticated: exitCodes.notAllowed,
  forbidden: exitCodes.notAllowed,
  sandbox_wrong_state: exitCodes.conflict,
  sandbox_paused: exitCodes.conflict,
  checkpoint_not_found: exitCodes.notFound,
  checkpoint_not_usable: exitCodes.conflict,
  pause_unsupported: exitCodes.refused,
  backup_not_found: exitCodes.notFound,
  freeze_failed: exitCodes.notNow,
  name_taken: exitCodes.conflict,
  stale_generation: exitCodes.conflict,
  version_mismatch: exitCodes.conflict,
  lease_lost: exitCodes.conflict,
  lease_held: exitCodes.notNow,
  lease_wait_timeout: exitCodes.notNow,
  limit_exceeded: exitCodes.notNow,
  insufficient_storage: exitCodes.notNow,
  shutting_down: exitCodes.notNow,
  node_unavailable: exitCodes.unreachable,
  sandbox_unavailable: exitCodes.unreachable,
  checkout_unusable: exitCodes.refused,
  checkout_without_sandbox: exitCodes.notFound,
  checkout_ambiguous: exitCodes.conflict,
  checkout_busy: exitCodes.notNow,
  checkout_cache_unusable: exitCodes.notConfigured,
  definition_invalid: exitCodes.refused,
  setup_failed: exitCodes.conflict,
  server_unreachable: exitCodes.unreachable,
  outcome_unknown: exitCodes.outcomeUnknown,
  operation_in_doubt: exitCodes.outcomeUnknown,
  isolation_failed: exitCodes.bug,
  network_unavailable: exitCodes.notConfigured,
  layer_not_found: exitCodes.notFound,
  layer_in_use: exitCodes.conflict,
  layer_incompatible: exitCodes.conflict,
  layer_damaged: exitCodes.bug,
  storage_unsupported: exitCodes.bug,
  storage_failed: exitCodes.bug,
  sync_not_possible: exitCodes.refused,
  sync_failed: exitCodes.notNow,
  sync_limit_exceeded: exitCodes.refused,
  sync_unsafe: exitCodes.refused,
  internal: exitCodes.bug,
};
