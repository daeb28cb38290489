import type { AddCommand } from '../command-adder.ts';
import { exitCodes } from '../exit-codes.ts';

export const addDoctor: AddCommand = (program, actions) => {
  program
    .command('doctor')
    .description('try what this machine can do, and say what is missing and how to fix it')
    .action(
      actions.of<object, []>(async (call) => {
        const app = await call.io.loadApp();
        const report = await app.runDoctor({ dataDirectory: call.options.data ?? app.defaultDataDirectory() });
        if (!report.ok) call.exitCode = exitCodes.checkFailed;
        await call.print(report, () => {
          const lines = report.checks.map((check) => {
            const mark = check.ok ? 'ok     ' : check.required ? 'MISSING' : 'limited';
            const fix = check.ok || check.fix === '' ? '' : `\n        fix: ${check.fix}`;
            return `${mark} ${check.name}: ${check.message}${fix}\n`;
          });
          const verdict = report.ok
            ? 'This machine can run sandboxes.\n'
            : 'This machine cannot run sandboxes yet: see what is MISSING above.\n';
          return `${lines.join('')}${verdict}`;
        });
      }),
    );
};
