/** Makes tar archives byte by byte, also such as no tool would write. */
export interface TarItem {
  readonly name: string;
  readonly type?: string;
  readonly target?: string;
  readonly content?: string | Buffer;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly mtime?: number;
  /** What the header says when it is not the truth. */
  readonly size?: number;
  readonly pax?: Readonly<Record<string, string | Buffer>>;
}

const block = 512;

/** Ends with two blocks of zeros unless `isOpen`. */
export function buildTar(items: readonly TarItem[], options: { readonly isOpen?: boolean } = {}): Buffer {
  const parts = items.flatMap(partsOf);
  return Buffer.concat(options.isOpen === true ? parts : [...parts, Buffer.alloc(2 * block)]);
}

function partsOf(item: TarItem): Buffer[] {
  const content = Buffer.from(item.content ?? '');
  const own = [headerOf(item, content.byteLength), padded(content)];
  if (item.pax === undefined) return own;
  const records = Buffer.concat(Object.entries(item.pax).map(([key, value]) => recordOf(key, Buffer.from(value))));
  return [headerOf({ name: 'pax', type: 'x' }, records.byteLength), padded(records), ...own];
}

function headerOf(item: TarItem, length: number): Buffer {
  const header = Buffer.alloc(block);
  const octal = (value: number, at: number, size: number) =>
    header.write(value.toString(8).padStart(size - 1, '0'), at, size - 1, 'latin1');
  header.write(item.name, 0, 100, 'utf8');
  octal(item.mode ?? (item.type === '5' ? 0o755 : 0o644), 100, 8);
  octal(item.uid ?? 0, 108, 8);
  octal(item.gid ?? 0, 116, 8);
  octal(item.size ?? length, 124, 12);
  octal(item.mtime ?? 1_700_000_000, 136, 12);
  header.write(item.type ?? '0', 156, 1, 'latin1');
  header.write(item.target ?? '', 157, 100, 'utf8');
  header.write('ustar\x0000', 257, 8, 'latin1');
  header.fill(0x20, 148, 156);
  octal(
    header.reduce((sum, byte) => sum + byte, 0),
    148,
    7,
  );
  return header;
}

function padded(content: Buffer): Buffer {
  return Buffer.concat([content, Buffer.alloc((block - (content.byteLength % block)) % block)]);
}

/** The length counts its own digits. */
function recordOf(key: string, value: Buffer): Buffer {
  const rest = Buffer.byteLength(key) + value.byteLength + 3;
  let length = rest + String(rest).length;
  length = rest + String(length).length;
  return Buffer.concat([Buffer.from(`${length} ${key}=`), value, Buffer.from('\n')]);
}
