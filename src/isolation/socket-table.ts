/** The kernel's table of TCP sockets (`/proc/net/tcp`, `/proc/net/tcp6`) as data: those that listen. */

export interface TableSocket {
  readonly port: number;
  readonly family: 4 | 6;
  readonly address: string;
  readonly inode: number;
}

const line =
  /^\s*\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 0A \S+ \S+ \S+\s+\d+\s+\d+ (\d+) /;

/** What does not look like a line of it, the heading and a last line that is cut short included, is left out. */
export function parseSocketTable(text: string, family: 4 | 6): TableSocket[] {
  const sockets: TableSocket[] = [];
  for (const one of text.split('\n')) {
    const [, address, port, inode] = line.exec(one) ?? [];
    if (address === undefined || address.length !== (family === 4 ? 8 : 32)) continue;
    sockets.push({
      port: Number.parseInt(port!, 16),
      family,
      address: family === 4 ? readV4(address) : readV6(address),
      inode: Number(inode),
    });
  }
  return sockets;
}

/** Words of 32 bits, as the machine has them in memory: little-endian on every machine that this runs on. */
function bytesOf(hex: string): Buffer {
  const bytes = Buffer.from(hex, 'hex');
  return bytes.swap32();
}

function readV4(hex: string): string {
  return [...bytesOf(hex)].join('.');
}

function readV6(hex: string): string {
  const groups = bytesOf(hex).toString('hex').match(/.{4}/g)!;
  // URL writes an address in its shortest form.
  return new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1);
}
