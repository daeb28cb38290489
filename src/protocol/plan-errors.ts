/** The rows of the error catalog that are about plans. */
import type { ErrorSpec } from './errors.ts';

export const planErrors = {
  plan_not_found: { status: 404, retry: 'never', meaning: 'No such plan, member or commit in this team.' },
  plan_wrong_state: { status: 409, retry: 'never', meaning: 'Not possible in the current state of the plan.' },
  plan_target_unusable: {
    status: 409,
    retry: 'never',
    meaning:
      'A repository or directory cannot take the result of a plan as it is (said by the client); nothing was changed.',
  },
  plan_target_busy: {
    status: 409,
    retry: 'backoff',
    meaning:
      'Another program is at work in a repository that a plan goes to (said by the client); nothing was changed.',
  },
  plan_journal_unusable: {
    status: 409,
    retry: 'never',
    meaning:
      'The journal of an apply is damaged, or newer than this program (said by the client); nothing was changed.',
  },
  plan_apply_superseded: {
    status: 409,
    retry: 'never',
    meaning: 'Another process has taken an apply over and settles it (said by the client).',
  },
} as const satisfies Record<string, ErrorSpec>;
