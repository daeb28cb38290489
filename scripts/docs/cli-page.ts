import type { Command } from 'commander';
import { code, generatedNote, page, table } from './markdown.ts';

export function renderCliPage(program: Command): string {
  return page([
    generatedNote,
    '# The command line',
    program.description(),
    ...optionsOf(program, 'Options of every command'),
    ...program.createHelp().visibleCommands(program).filter(isDocumented).flatMap(renderCommand),
  ]);
}

function renderCommand(command: Command): string[] {
  const help = command.createHelp();
  const subcommands = help.visibleCommands(command).filter(isDocumented);
  const rows = help
    .visibleArguments(command)
    .map((argument) => [code(help.argumentTerm(argument)), help.argumentDescription(argument)]);
  return [
    `## ${fullName(command)}`,
    command.description(),
    subcommands.length > 0 ? '' : `\`\`\`\n${help.commandUsage(command)}\n\`\`\``,
    table(['argument', 'means'], rows),
    ...optionsOf(command),
    ...subcommands.flatMap(renderCommand),
  ];
}

function optionsOf(command: Command, title = ''): string[] {
  const help = command.createHelp();
  // Every command has --help.
  const options = help.visibleOptions(command).filter((option) => option.long !== '--help');
  const rows = options.map((option) => [code(help.optionTerm(option)), help.optionDescription(option)]);
  return rows.length === 0 ? [] : [title === '' ? '' : `## ${title}`, table(['option', 'means'], rows)];
}

function isDocumented(command: Command): boolean {
  return command.name() !== 'help';
}

function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;
}
