import { expect, test } from 'vitest';
import { findMountOf, parseMounts } from './mount-table.ts';

const text = `proc /proc proc rw,relatime 0 0
/dev/vda / ext4 rw,relatime 0 0
/dev/vdb /with\\040blank xfs rw,nosuid,nodev 0 0
tmpfs /with\\040blank/over tmpfs rw 0 0
`;

test('escaped blanks in a mount point are read back', () => {
  expect(parseMounts(text).map((mount) => mount.directory)).toContain('/with blank');
});

test('a path belongs to the longest mount point that holds it', () => {
  const mounts = parseMounts(text);
  expect(findMountOf(mounts, '/with blank/a')?.type).toBe('xfs');
  expect(findMountOf(mounts, '/with blank/over')?.type).toBe('tmpfs');
  expect(findMountOf(mounts, '/with blankets')?.type).toBe('ext4');
});
