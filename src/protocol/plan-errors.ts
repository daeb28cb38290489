/** The rows of the error catalog that are about plans. */
import type { ErrorSpec } from './errors.ts';

export const planErrors = {
  plan_not_found: { status: 404, retry: 'never', meaning: 'No such plan, member or commit in this team.' },
  plan_wrong_state: { status: 409, retry: 'never', meaning: 'Not possible in the current state of the plan.' },
} as const satisfies Record<string, ErrorSpec>;
