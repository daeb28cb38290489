/** Everything that a tree on disk is, entry by entry, so that two can be compared: also what Node cannot see, such as attributes. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export interface ListedEntry {
  readonly kind: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** In nanoseconds, as text. */
  readonly mtime: string;
  readonly content: string;
  readonly attributes: Readonly<Record<string, string>>;
  /** The first path, in order, that is the same file. */
  readonly sameAs: string;
}

const program = `
import hashlib, json, os, stat, sys
top = os.fsencode(sys.argv[1])
seen, found = {}, {}
def look(path, name):
    info = os.lstat(path)
    kind = stat.S_IFMT(info.st_mode)
    content = ''
    if stat.S_ISLNK(info.st_mode): content = os.fsencode(os.readlink(path)).hex()
    elif stat.S_ISREG(info.st_mode): content = hashlib.sha256(open(path, 'rb').read()).hexdigest()
    attributes = {a: os.getxattr(path, a, follow_symlinks=False).hex() for a in os.listxattr(path, follow_symlinks=False)}
    same = name if stat.S_ISDIR(info.st_mode) else seen.setdefault((info.st_dev, info.st_ino), name)
    found[name] = dict(kind=oct(kind), mode=stat.S_IMODE(info.st_mode), uid=info.st_uid, gid=info.st_gid,
        mtime=str(info.st_mtime_ns), content=content, attributes=attributes, sameAs=same)
    if stat.S_ISDIR(info.st_mode):
        for child in sorted(os.listdir(path)):
            look(path + b'/' + child, (name + '/' if name else '') + child.decode('latin1'))
look(top, '')
print(json.dumps(found))
`;

/** By path; the top is ''. Names are byte strings. */
export async function listTree(directory: string): Promise<Readonly<Record<string, ListedEntry>>> {
  const { stdout } = await promisify(execFile)('python3', ['-c', program, directory], { maxBuffer: 256 * 1024 * 1024 });
  return JSON.parse(stdout) as Readonly<Record<string, ListedEntry>>;
}
