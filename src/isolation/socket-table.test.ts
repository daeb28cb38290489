import { expect, test } from 'vitest';
import { parseSocketTable } from './socket-table.ts';

const heading =
  '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     \n';
const rest = '00000000:00000000 00:00000000 00000000     0        0';

test('what listens is read with address, port and inode; what is connected is left out', () => {
  const text = `${heading}   0: 0100007F:1F90 00000000:0000 0A ${rest} 12345 1 0 100 0 0 10 0
   1: 0200007F:0050 00000000:0000 0A ${rest} 7 1 0 100 0 0 10 0
   2: 00000000:FFFF 00000000:0000 0A ${rest} 8 1 0 100 0 0 10 0
   3: 0100007F:1F90 0100007F:D431 01 ${rest} 9 1 0 100 0 0 10 0
`;
  expect(parseSocketTable(text, 4)).toEqual([
    { port: 8080, family: 4, address: '127.0.0.1', inode: 12345 },
    { port: 80, family: 4, address: '127.0.0.2', inode: 7 },
    { port: 65_535, family: 4, address: '0.0.0.0', inode: 8 },
  ]);
});

test('addresses of IPv6 are read in their shortest form', () => {
  const one = (address: string) =>
    parseSocketTable(`   0: ${address}:0050 ${'0'.repeat(32)}:0000 0A ${rest} 5 1 0 100 0 0 10 0\n`, 6)[0]?.address;
  expect(one('00000000000000000000000001000000')).toBe('::1');
  expect(one('0'.repeat(32))).toBe('::');
  expect(one('B80D01200000000000000000EFBE0000')).toBe('2001:db8::beef');
  expect(one('0000000000000000FFFF00000200007F')).toBe('::ffff:7f00:2');
});

test('what is no line of the table, or is cut short, is left out', () => {
  const texts = ['', heading, '   0: 0100007F:1F90 00000000:00', `   0: ZZ:1F90 00000000:0000 0A ${rest} 1 1`, '\0\0'];
  for (const text of texts) expect(parseSocketTable(text, 4)).toEqual([]);
  expect(parseSocketTable(`   0: 0100007F:1F90 00000000:0000 0A ${rest} 1 1`, 6)).toEqual([]);
});
