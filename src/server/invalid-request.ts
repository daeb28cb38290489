/** Says what is wrong with a request: every refusal of a schema names the field and what it should be. */
import type { z } from 'zod';
import { PlatformError } from '../protocol/index.ts';

export type RequestPart = 'path' | 'query' | 'body' | 'header';

export interface Issue {
  readonly in: RequestPart;
  /** With dots between names; empty for the part as a whole. */
  readonly path: string;
  readonly message: string;
}

const issuesMax = 20;
const pathMaxLength = 200;

export function invalidRequest(issues: readonly Issue[]): PlatformError {
  const [first] = issues;
  const more = issues.length > 1 ? ` (and ${issues.length - 1} more, see the details)` : '';
  const place = first === undefined ? '' : `${first.in}${first.path === '' ? '' : ` "${first.path}"`}: `;
  return new PlatformError('invalid_request', `${place}${first?.message ?? 'The request is not valid.'}${more}`, {
    details: { issues: issues.slice(0, issuesMax) },
  });
}

/** Parses one part of the request; refuses with everything that is wrong in it. */
export function parsePart<Schema extends z.ZodType>(
  schema: Schema,
  part: RequestPart,
  value: unknown,
): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw invalidRequest(parsed.error.issues.flatMap((issue) => issuesOf(issue, part)));
}

function issuesOf(issue: z.core.$ZodIssue, part: RequestPart): readonly Issue[] {
  const at = (path: readonly PropertyKey[], message: string): Issue => ({
    in: part,
    path: path.map(String).join('.').slice(0, pathMaxLength),
    message,
  });
  switch (issue.code) {
    case 'unrecognized_keys':
      return issue.keys.slice(0, issuesMax).map((key) => at([...issue.path, key], 'There is no such field.'));
    case 'invalid_key':
      return [at(issue.path, issue.issues[0]?.message ?? issue.message)];
    case 'invalid_union':
      return [at(issue.path, messageOfUnion(issue))];
    default:
      return [at(issue.path, issue.message)];
  }
}

function messageOfUnion(issue: z.core.$ZodIssueInvalidUnion): string {
  const messages = issue.errors.map((errors) => {
    const [first] = errors;
    if (first === undefined) return 'Invalid input.';
    return first.path.length === 0 ? first.message : `${first.path.map(String).join('.')}: ${first.message}`;
  });
  return messages.length === 0 ? issue.message : [...new Set(messages)].join(' Or: ');
}
