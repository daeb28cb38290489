import { createReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { BuildLogItem, TemplateView } from '../../protocol/index.ts';
import type { Atoll, TemplateBuild } from '../../sdk/index.ts';
import { CliError } from '../cli-error.ts';
import { type AddCommand, withIdempotencyKey } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { copiedPaths } from '../definition-context.ts';
import { exitCodes } from '../exit-codes.ts';
import { packPaths } from '../local-tar.ts';
import { readableBytes, readableFields, readableTable, readableWhen } from '../readable.ts';
import { SentBytes } from '../sent-bytes.ts';

interface BuildOptions {
  readonly name?: string;
  readonly packages?: string;
  readonly detach?: boolean;
}

export const addTemplate: AddCommand = (program, actions) => {
  const template = program.command('template').description('what sandboxes start from');

  withIdempotencyKey(template.command('build'))
    .description('build a template; prints what happens, and its id when it is done')
    .argument(
      '<what>',
      '"base", "debian", a definition file, docker://REFERENCE, docker-archive:FILE or oci-archive:FILE',
    )
    .option('--name <name>', 'what it is called; default: "base", "debian", or the name of the file')
    .option('--packages <list>', 'with "debian": Debian packages, with commas between')
    .option('-d, --detach', 'print the id of the build and leave it to itself')
    .action(
      actions.of<BuildOptions, [what: string]>(async (call, what) => {
        const build = await begin(call, what);
        if (call.options.detach) return await call.print(build.view, () => `${build.id}\n`);
        await follow(call, build);
      }),
    );

  template
    .command('logs')
    .description('what a build said and says, until it has ended')
    .argument('<build>', 'its id')
    .action(
      actions.of<object, [buildId: string]>(async (call, buildId) => {
        await follow(call, await (await call.client()).templates.findBuild(buildId));
      }),
    );

  withIdempotencyKey(template.command('cancel'))
    .description('end a build; nothing of it is left')
    .argument('<build>', 'its id')
    .action(
      actions.of<object, [buildId: string]>(async (call, buildId) => {
        const build = await (await call.client()).templates.findBuild(buildId);
        const view = await build.cancel(call.conditions());
        await call.print(view, () => `${view.state}\n`);
      }),
    );

  template
    .command('ls')
    .description('list templates')
    .action(
      actions.of<object, []>(async (call) => {
        const items = await (await call.client()).templates.list();
        const nowMs = call.io.nowMs();
        const rows = items.map((item) => [
          item.name,
          item.id ?? '-',
          item.sizeBytes === null ? '-' : readableBytes(item.sizeBytes),
          item.createdAt === null ? '-' : readableWhen(item.createdAt, nowMs),
          item.sandboxes === null ? '-' : String(item.sandboxes),
        ]);
        await call.print({ items }, () => readableTable(['NAME', 'ID', 'SIZE', 'BUILT', 'SANDBOXES'], rows));
      }),
    );

  template
    .command('show')
    .description('one template')
    .argument('<name>', 'of the template')
    .action(
      actions.of<object, [name: string]>(async (call, name) => {
        const view = await (await call.client()).templates.get(name);
        await call.print(view, () => readableFields(fieldsOf(view)));
      }),
    );

  withIdempotencyKey(template.command('rm'))
    .description('take its name away; sandboxes of it go on, and its files go with the last of them')
    .argument('<name>', 'of the template')
    .action(
      actions.of<object, [name: string]>(async (call, name) => {
        await (await call.client()).templates.remove(name, call.conditions());
        await call.print({ removed: name }, () => `${name}\n`);
      }),
    );
};

async function begin(call: CommandCall<BuildOptions>, what: string): Promise<TemplateBuild> {
  const { templates } = await call.client();
  const { name, packages } = call.options;
  if (packages !== undefined && what !== 'debian') {
    throw new CliError('--packages goes with "debian".', {
      exitCode: exitCodes.usage,
      code: 'usage',
      hint: 'In a definition file, packages are listed under "packages".',
    });
  }
  if (what === 'base') return await templates.build(name ?? 'base', { kind: 'base' }, call.conditions());
  if (what === 'debian') {
    const list = (packages ?? '').split(',').map((one) => one.trim());
    const source = { kind: 'debian', packages: list.filter((one) => one !== '') } as const;
    return await templates.build(name ?? 'debian', source, call.conditions());
  }
  const [, word, rest = ''] = /^(docker:\/\/|docker-archive:|oci-archive:)(.+)$/.exec(what) ?? [];
  if (word === 'docker://') {
    return await templates.build(nameOf(call, rest), { kind: 'image', reference: rest }, call.conditions());
  }
  if (word !== undefined) {
    await checkFile(rest);
    const contextId = await uploadContext(templates, createReadStream(rest));
    return await templates.build(nameOf(call, rest), { kind: 'imageArchive', contextId }, call.conditions());
  }
  const text = await readDefinition(what);
  const paths = copiedPaths(text);
  const contextId =
    paths.length === 0 ? {} : { contextId: await uploadContext(templates, packPaths(dirname(what), paths)) };
  return await templates.build(nameOf(call, what), { kind: 'definition', text, ...contextId }, call.conditions());
}

async function uploadContext(templates: Atoll['templates'], tar: AsyncIterable<Uint8Array>): Promise<string> {
  const sent = new SentBytes(tar);
  return await sent.orWhy(templates.uploadContext(sent.bytes()));
}

/** The last part of a path or reference, without what tells its kind. */
function nameOf(call: CommandCall<BuildOptions>, what: string): string {
  return call.options.name ?? what.replace(/^.*\//, '').replace(/(\.ya?ml|\.tar|@.*)$/, '');
}

async function readDefinition(path: string): Promise<string> {
  await checkFile(path);
  return await readFile(path, 'utf8');
}

async function checkFile(path: string): Promise<void> {
  if ((await stat(path).catch(() => undefined))?.isFile()) return;
  const message = `There is no file ${path}.`;
  throw new CliError(message, {
    exitCode: exitCodes.notFound,
    code: 'file_not_found',
    hint: 'docs/templates.md tells how a definition is written.',
  });
}

async function follow(call: CommandCall<unknown>, build: TemplateBuild): Promise<void> {
  for await (const item of build.log()) if (!call.isJson) await call.io.stderr.write(shown(item));
  const view = await build.wait();
  await call.print(view, () => `${view.templateId}\n`);
}

function shown(item: BuildLogItem): string {
  switch (item.kind) {
    case 'step':
      return `[${item.step}/${item.steps}] ${item.text.split('\n')[0]}${item.cached ? ' (was there)' : ''}\n`;
    case 'log':
      return item.text;
    case 'dropped':
      return '… what came before is no longer kept\n';
    case 'ended':
      return '';
  }
}

function fieldsOf(view: TemplateView): [string, string][] {
  const { start } = view;
  return [
    ['Name', view.name],
    ['Id', view.id ?? '-'],
    ['From', view.from],
    ['Size', view.sizeBytes === null ? '-' : readableBytes(view.sizeBytes)],
    ['Built', view.createdAt ?? '-'],
    ['User', view.user],
    ['Directory', view.workdir],
    ['Environment', Object.keys(view.env).join(' ') || '-'],
    ['Start', start === null ? '-' : typeof start.command === 'string' ? start.command : start.command.join(' ')],
    ['Sandboxes', view.sandboxes === null ? '-' : String(view.sandboxes)],
  ];
}
