/** The environment of a command: what every login has, then the sandbox's own, then the call's. null unsets. */
const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * The home directory follows the name and not the sandbox's /etc/passwd, which a node does not read: the sandbox can write it.
 * A user who lives elsewhere sets HOME.
 */
export function commandEnvironment(options: {
  readonly user: string;
  readonly sandbox: Readonly<Record<string, string>>;
  readonly call: Readonly<Record<string, string | null>>;
}): Record<string, string> {
  const all = { PATH: path, LANG: 'C.UTF-8', ...identityOf(options.user), ...options.sandbox, ...options.call };
  const set = Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== null);
  return Object.fromEntries(set);
}

function identityOf(user: string): Record<string, string> {
  const [name = ''] = user.split(':');
  if (name === '0' || name === 'root') return { HOME: '/root', USER: 'root', LOGNAME: 'root' };
  if (name === '1000' || name === 'user') return { HOME: '/home/user', USER: 'user', LOGNAME: 'user' };
  if (/^\d+$/.test(name)) return { HOME: '/' };
  return { HOME: `/home/${name}`, USER: name, LOGNAME: name };
}
