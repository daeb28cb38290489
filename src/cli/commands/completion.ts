/** Completion for shells, made from the commands themselves: what is typed so far is answered by the hidden command `__complete`. */
import { Argument, type Command } from 'commander';
import type { AddCommand } from '../command-adder.ts';

const scripts = {
  bash: `_atoll() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -W "$(atoll __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _atoll atoll
`,
  zsh: `#compdef atoll
_atoll() {
  local -a found
  found=("\${(@f)$(atoll __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -a found || _files
}
compdef _atoll atoll
`,
  fish: `complete -c atoll -f -a '(atoll __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
`,
} as const;

export const addCompletion: AddCommand = (program, actions) => {
  program
    .command('completion')
    .description('print a script that completes atoll commands; for bash: eval "$(atoll completion bash)"')
    .addArgument(new Argument('<shell>', 'which one').choices(Object.keys(scripts)))
    .action(
      actions.of<object, [shell: keyof typeof scripts]>(async (call, shell) => {
        await call.print({ shell, script: scripts[shell] }, () => scripts[shell]);
      }),
    );
  program.command('__complete [words...]', { hidden: true }).action(
    actions.of<object, [words: string[]]>(async (call, words) => {
      const found = complete(program, words);
      await call.print({ words: found }, () => found.map((word) => `${word}\n`).join(''));
    }),
  );
};

/** What may stand in the place of the last word. */
function complete(program: Command, words: readonly string[]): readonly string[] {
  const last = words.at(-1) ?? '';
  let command = program;
  for (const word of words.slice(0, -1)) {
    if (word === '--') return [];
    command = command.commands.find((inner) => inner.name() === word || inner.aliases().includes(word)) ?? command;
  }
  const candidates = last.startsWith('-')
    ? [...command.options, ...program.options].map((option) => option.long ?? option.short ?? '')
    : command.commands.map((inner) => inner.name()).filter((name) => !name.startsWith('__'));
  return [...new Set(candidates)].filter((word) => word.startsWith(last) && word !== '').sort();
}
