import { expect, test } from 'vitest';
import { layoutOf } from './cgroup-layout.ts';
import { parseMounts } from './mount-table.ts';

const hybrid = parseMounts(`cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
`);

test('on a hybrid machine the limits are in the v1 hierarchies', () => {
  const layout = layoutOf({ mounts: hybrid, v2: '/sys/fs/cgroup/unified', v2Available: ['hugetlb'] });
  expect([...layout.v2Controllers]).toEqual([]);
  expect(Object.fromEntries(layout.v1)).toEqual({
    memory: '/sys/fs/cgroup/memory',
    cpu: '/sys/fs/cgroup/cpu,cpuacct',
    pids: '/sys/fs/cgroup/pids',
  });
});

test('where the v2 tree has a controller, v1 is not used for it', () => {
  const layout = layoutOf({ mounts: hybrid, v2: '/sys/fs/cgroup', v2Available: ['cpu', 'memory', 'pids', 'io'] });
  expect([...layout.v2Controllers]).toEqual(['memory', 'cpu', 'pids']);
  expect(layout.v1.size).toBe(0);
});
