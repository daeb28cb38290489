/**
 * The accounts of the `host` template: the host's system users and groups without passwords or members, and one ordinary user. No
 * field of the host's shadow files is ever read.
 */
const ordinaryId = 1000;
const ordinaryName = 'user';
const firstOrdinaryId = 1000;
const nobodyId = 65_534;

export interface AccountFiles {
  readonly passwd: string;
  readonly group: string;
  readonly shadow: string;
  readonly gshadow: string;
  /** The group that may read shadow. */
  readonly shadowGid: number;
}

export function accountFiles(host: { readonly passwd: string; readonly group: string }): AccountFiles {
  const users = entriesOf(host.passwd, 7).filter(isSystem);
  const groups = entriesOf(host.group, 4).filter(isSystem);
  const passwd = users.map(([name, , uid, gid, about, home, shell]) => [name, 'x', uid, gid, about, home, shell]);
  passwd.push([ordinaryName, 'x', `${ordinaryId}`, `${ordinaryId}`, '', `/home/${ordinaryName}`, '/bin/bash']);
  const group = groups.map(([name, , gid]) => [name, 'x', gid, name === 'sudo' ? ordinaryName : '']);
  group.push([ordinaryName, 'x', `${ordinaryId}`, '']);
  return {
    passwd: lines(passwd),
    group: lines(group),
    // "*" is no password's hash: nobody can log in by password, while account checks of PAM and sudo pass.
    shadow: lines(passwd.map(([name]) => [name, '*', '19000', '0', '99999', '7', '', '', ''])),
    gshadow: lines(group.map(([name, , , members]) => [name, '*', '', members])),
    shadowGid: Number(groups.find(([name]) => name === 'shadow')?.[2] ?? 0),
  };
}

function entriesOf(text: string, fields: number): string[][] {
  return text
    .split('\n')
    .map((line) => line.split(':'))
    .filter((entry) => entry.length === fields && /^[a-z_][a-z0-9_.-]*$/i.test(entry[0]!));
}

function isSystem(entry: readonly string[]): boolean {
  const id = /^\d{1,5}$/.test(entry[2]!) ? Number(entry[2]) : undefined;
  return id !== undefined && (id < firstOrdinaryId || id === nobodyId) && entry[0] !== ordinaryName;
}

function lines(entries: readonly (readonly (string | undefined)[])[]): string {
  return entries.map((entry) => `${entry.join(':')}\n`).join('');
}
