/**
 * Random lines, run one by one in a session and as one file by bash: the same output, the same statuses, the same state at the end.
 *
 * Left out, because bash itself does one thing or another from run to run: traps for CHLD, and the kill of a job that has just been forked.
 * Left out, because they differ and docs/execution.md says so: line numbers, $0 and what is made of it, pids, and text that cannot be
 * parsed, which ends a script (it is given to `eval` here, but for open quotes, after which bash 5.2 reads the next line of a file wrongly).
 */
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeWith, requires } from '../support/requires.ts';
import { SessionRig } from '../support/session-rig.ts';

const seed = Number(process.env['ATOLL_SEED'] ?? Date.now() % 1_000_000_007);
/** Longer, to look for what a few seconds do not find. */
const timeLimitMs = Number(process.env['ATOLL_EQUALS_MS'] ?? 10_000);

/** What differs every time is a difference; parts of a pipeline that trace at the same time come in any order. */
const attemptsMax = 8;

const name = fc.constantFrom('a', 'b', 'c', 'arr', 'map', 'num');
const word = fc.constantFrom(
  'x',
  '"two words"',
  '"$a"',
  '$b',
  '""',
  '*',
  '{1..3}',
  '"${arr[@]}"',
  '$((num + 1))',
  "$'t\\tb'",
  '~',
  '"$?"',
  '"$_"',
  '"$*"',
  '"$#"',
);
const small = fc.integer({ min: 0, max: 5 });

const assignment = fc.oneof(
  fc.tuple(name, word).map(([n, w]) => `${n === 'map' ? 'map[k]' : n}=${w}`),
  fc
    .tuple(fc.constantFrom('export', 'declare', 'declare -i', 'declare -l', 'readonly', 'unset', 'local'), name)
    .map(([d, n]) => `${d} ${n}`),
  fc.tuple(fc.constantFrom('arr', 'a'), fc.array(word, { maxLength: 3 })).map(([n, w]) => `${n}=(${w.join(' ')})`),
  fc.constant('declare -A map=([k]=v [l]="w x")'),
  fc.constant('declare -n ref=a; ref=through'),
  word.map((w) => `a=${w} b=${w} printf "%s|" "$a"`),
);

const simple = fc.oneof(
  fc.array(word, { maxLength: 3 }).map((words) => `echo ${words.join(' ')}`),
  fc.array(word, { minLength: 1, maxLength: 3 }).map((words) => `printf '<%s>' ${words.join(' ')}; echo`),
  small.map((n) => `(exit ${n})`),
  fc.constantFrom(
    'true',
    'false',
    ':',
    'nosuchcommand',
    'cd .',
    'cd sub',
    'cd /nowhere',
    'cd -',
    'mkdir -p sub',
    'shift',
    'set -- p q r',
    'set --',
  ),
  fc.constantFrom(
    'f',
    'f 1 2',
    'g',
    'al',
    'al more',
    'unset -f f',
    'unalias al',
    'declare -f f',
    'type f g al | head -3',
  ),
  fc.constantFrom(
    'read a; echo "r$?"',
    "mapfile -t arr <<< $'1\\n2'",
    'echo "$a" | tr a-z A-Z',
    'a=$(echo sub; exit 4)',
    'echo `echo old`',
    'cat <(echo ps)',
  ),
  fc.constantFrom(
    'echo ${a?}',
    'echo ${undefined:-dflt}',
    'echo $((1/0))',
    'echo ${a!b}',
    'echo ${#arr[@]}',
    'echo "${!map[@]}"',
    '[[ $a == x* ]]',
    '((num++))',
    'let num=3',
  ),
  fc.constantFrom(
    'echo err >&2',
    'nosuch 2>/dev/null',
    'echo f >out',
    'echo g >>out',
    'cat <out',
    'cat </nowhere',
    'echo to3 >&3',
    'exec 3>&1',
    'exec 3>&-',
    'exec 3>three',
    'exec 2>&1',
  ),
  fc.constantFrom(
    'sleep 0 & wait $!',
    '(exit 3) & wait $!',
    'wait',
    'jobs',
    'jobs -p',
    'true | false',
    '! true',
    'echo ${PIPESTATUS[@]}',
  ),
);

const option = fc.oneof(
  fc
    .tuple(
      fc.constantFrom('-', '+'),
      fc.constantFrom('f', 'x', 'v', 'u', 'a', 'C', 'o pipefail', 'o posix', 'B', 'E', 'T', 'm'),
    )
    .map(([sign, o]) => `set ${sign}${o}`),
  fc
    .tuple(
      fc.constantFrom('-s', '-u'),
      fc.constantFrom(
        'nullglob',
        'extglob',
        'dotglob',
        'lastpipe',
        'failglob',
        'nocasematch',
        'expand_aliases',
        'inherit_errexit',
      ),
    )
    .map(([sign, o]) => `shopt ${sign} ${o}`),
  fc.constantFrom(
    'umask 077',
    'umask 022',
    'IFS=:',
    'unset IFS',
    'ulimit -S -n 100',
    'hash -r',
    'enable -n echo',
    'enable echo',
    'OPTIND=1',
    'getopts ab a',
  ),
);

const definition = fc.oneof(
  simple.map((body) => `f() { ${body}; return 3; }`),
  simple.map((body) => `g() { local b=inner; ${body}; }`),
  fc.constantFrom("alias al='echo aliased '", "alias al='false'"),
);

const trap = fc
  .tuple(
    fc.constantFrom('echo T$?', ':', 'a=trapped', 'echo in trap >&2'),
    fc.constantFrom('EXIT', 'ERR', 'DEBUG', 'RETURN', 'USR1'),
  )
  .map(([body, on]) => `trap '${body}' ${on}`);

const compound = fc.oneof(
  fc.tuple(simple, simple).map(([one, two]) => `if ${one}; then ${two}; else echo else; fi`),
  simple.map((body) => `for i in 1 2; do ${body}; [ $i = 1 ] && continue; break; done`),
  simple.map((body) => `{ ${body}; } 2>&1 | cat`),
  simple.map((body) => `( ${body} )`),
  fc.tuple(simple, fc.constantFrom('&&', '||', ';'), simple).map(([one, op, two]) => `${one} ${op} ${two}`),
  simple.map((body) => `case $a in x) ${body};; *) echo other;; esac`),
  simple.map((body) => `while read -r l; do echo "l=$l"; ${body}; done <<< "one"`),
);

const line = fc.oneof(
  { weight: 6, arbitrary: simple },
  { weight: 4, arbitrary: assignment },
  { weight: 3, arbitrary: compound },
  { weight: 2, arbitrary: option },
  { weight: 2, arbitrary: definition },
  { weight: 2, arbitrary: trap },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      'trap -p',
      'kill -USR1 $$',
      'trap - DEBUG ERR',
      'return 2',
      'break',
      'continue',
      '# comment',
      '',
    ),
  },
  { weight: 1, arbitrary: fc.constantFrom("eval 'if'", "eval ')'", "eval 'exit 3' | cat") },
  {
    weight: 1,
    arbitrary: fc.constantFrom('set -e', 'exit 3', 'exec true', 'exec /bin/echo replaced', 'kill -TERM $$'),
  },
);

/** Variables whose values are the shell's own business. */
const varying =
  /^declare \S+ (BASH\w*|FUNCNAME|LINENO|SECONDS|EPOCH\w+|S?RANDOM|PPID|PIPESTATUS|_|SHLVL|DIRSTACK|COMP\w+|GROUPS)\b/;
/** A session expands aliases from the start. */
const firstLine = 'shopt -s expand_aliases';
const finalLook =
  '\\trap - DEBUG ERR; \\set +x +v; \\declare -p; \\declare -f; \\alias -p; \\trap -p; \\set +o; \\shopt -p; \\pwd; \\umask; \\exit 42';

describeWith(requires.root, requires.cgroups)('a session and a script', () => {
  let rig: SessionRig;

  beforeAll(async () => {
    rig = await SessionRig.open();
  });

  afterAll(async () => {
    await rig?.close();
  });

  test(
    `E24 E44: random lines do the same in both (seed ${seed})`,
    async () => {
      let cases = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(line, { minLength: 1, maxLength: 14 }), async (lines) => {
          // The parts of a pipeline trace in any order, in a script too: what differs by chance is the same in one of a few attempts.
          for (let attempt = 1; ; attempt++) {
            cases++;
            const inSession = await runInSession(lines, cases);
            const inScript = await runAsScript(lines, cases);
            if (attempt < attemptsMax && !isDeepStrictEqual(inSession, inScript)) continue;
            expect(inSession).toEqual(inScript);
            return;
          }
        }),
        { seed, numRuns: 10_000, interruptAfterTimeLimit: timeLimitMs, endOnFailure: false },
      );
      expect(cases).toBeGreaterThan(5);
    },
    timeLimitMs + 95_000,
  );

  async function runInSession(lines: readonly string[], number: number) {
    const directory = `/tmp/session-${number}`;
    await rig.run(`mkdir ${directory}`);
    const session = await rig.session({ cwd: directory });
    let stdout = '';
    let stderr = '';
    for (const text of [firstLine, ...lines, finalLook]) {
      const outcome = await session.exec(text, { timeoutMs: 30_000 });
      stdout += outcome.stdout;
      stderr += outcome.stderr;
      if (outcome.sessionEnded === null) continue;
      return await resultOf({ stdout, stderr, exitCode: outcome.sessionEnded.exitCode }, directory);
    }
    throw new Error('The session did not end.');
  }

  async function runAsScript(lines: readonly string[], number: number) {
    const directory = `/tmp/script-${number}`;
    const script = Buffer.from(`${[firstLine, ...lines, finalLook].join('\n')}\n`).toString('base64');
    await rig.run(`mkdir ${directory}; echo ${script} | base64 -d >/tmp/bash-${number}`);
    const outcome = await rig.run(['bash', `/tmp/bash-${number}`], { cwd: directory });
    return await resultOf(outcome, directory);
  }

  async function resultOf(outcome: { stdout: string; stderr: string; exitCode: number }, directory: string) {
    const files = await rig.run(`cd ${directory}; for f in $(find . -type f | sort); do echo "== $f"; cat $f; done`);
    const plain = (text: string) =>
      normal(text)
        .split('\n')
        .filter((row) => !varying.test(row));
    return {
      stdout: plain(outcome.stdout),
      // With `set -v` a script shows its empty lines; an empty text is no line.
      stderr: plain(outcome.stderr).filter((row) => row !== ''),
      exitCode: outcome.exitCode,
      files: normal(files.stdout),
    };
  }
});

/** Without names, numbers of lines and pids. */
function normal(text: string): string {
  return text
    .replaceAll(/^(bash|main|\/tmp\/bash-\d+): line \d+: +\d+ /gm, 'SHELL: PID ')
    .replaceAll(/(bash|main|\/tmp\/bash-\d+): (line \d+: )?/g, 'SHELL: ')
    .replaceAll(/\/tmp\/(session|script)-\d+/g, '/DIRECTORY')
    .replaceAll(/line \d+/g, 'line N')
    .replaceAll(/\b[1-9]\d{1,6}\b/g, 'NUMBER');
}
