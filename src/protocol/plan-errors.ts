/** The rows of the error catalog that are about plans. */
import type { ErrorSpec } from './errors.ts';

export const planErrors = {
  plan_not_found: {
    status: 404,
    retry: 'never',
    meaning: 'No such plan, member, commit or checkpoint of a plan in this team.',
  },
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
  plan_busy: {
    status: 409,
    retry: 'backoff',
    meaning: 'The plan is being committed, rolled back or restored; the details say by whom. Nothing was changed.',
  },
  plan_member_taken: { status: 409, retry: 'never', meaning: 'The sandbox belongs to another plan that is not over.' },
  plan_members_unfit: {
    status: 409,
    retry: 'never',
    meaning: 'Members cannot take part as they are; the details say which and why. Nothing was changed.',
  },
  plan_check_failed: {
    status: 409,
    retry: 'never',
    meaning: 'A check on the merged result failed or ran out of time; nothing was published.',
  },
  plan_commit_expired: {
    status: 409,
    retry: 'backoff',
    meaning: 'What was prepared was not decided in time, or whoever prepared it was replaced; nothing was published.',
  },
  plan_interrupted: {
    status: 409,
    retry: 'backoff',
    meaning: 'The server stopped before the decision; nothing was published. Ask again with a new commit id.',
  },
  plan_unmerged: {
    status: 409,
    retry: 'never',
    meaning:
      'Members have changes that are in no version; the details count them. Discard them by name to delete the plan.',
  },
} as const satisfies Record<string, ErrorSpec>;
