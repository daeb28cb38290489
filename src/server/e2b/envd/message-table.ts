/**
 * The messages of the two services, as one compact table. A field is `number name type`, with `*` for a list, `?` for an optional one and `@group` for
 * a member of a oneof; the type is a scalar, `map` (of text to text), `time`, a message of the same package, or an enum of it.
 */
export interface PackageTable {
  readonly name: string;
  readonly messages: Readonly<Record<string, string>>;
  readonly enums: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

export const processPackage: PackageTable = {
  name: 'process',
  messages: {
    Pty: '1 size PtySize',
    PtySize: '1 cols uint32, 2 rows uint32',
    ProcessConfig: '1 cmd string, 2 args string*, 3 envs map, 4 cwd string?',
    ProcessInfo: '1 config ProcessConfig, 2 pid uint32, 3 tag string?',
    ProcessSelector: '1 pid uint32 @selector, 2 tag string @selector',
    ProcessInput: '1 stdin bytes @input, 2 pty bytes @input',
    ProcessEvent: '1 start StartEvent @event, 2 data DataEvent @event, 3 end EndEvent @event, 4 keepalive Empty @event',
    StartEvent: '1 pid uint32',
    DataEvent: '1 stdout bytes @output, 2 stderr bytes @output, 3 pty bytes @output',
    EndEvent: '1 exit_code sint32, 2 exited bool, 3 status string, 4 error string?',
    Empty: '',
    ListResponse: '1 processes ProcessInfo*',
    StartRequest: '1 process ProcessConfig, 2 pty Pty?, 3 tag string?, 4 stdin bool?',
    ConnectRequest: '1 process ProcessSelector',
    EventResponse: '1 event ProcessEvent',
    UpdateRequest: '1 process ProcessSelector, 2 pty Pty?',
    SendInputRequest: '1 process ProcessSelector, 2 input ProcessInput',
    StreamInputRequest: '1 start ConnectRequest @event, 2 data StreamData @event, 3 keepalive Empty @event',
    StreamData: '2 input ProcessInput',
    SendSignalRequest: '1 process ProcessSelector, 2 signal Signal',
    CloseStdinRequest: '1 process ProcessSelector',
  },
  enums: { Signal: { SIGNAL_UNSPECIFIED: 0, SIGNAL_SIGKILL: 9, SIGNAL_SIGTERM: 15 } },
};

export const filesystemPackage: PackageTable = {
  name: 'filesystem',
  messages: {
    Empty: '',
    PathRequest: '1 path string',
    EntryResponse: '1 entry EntryInfo',
    MoveRequest: '1 source string, 2 destination string',
    ListDirRequest: '1 path string, 2 depth uint32',
    ListDirResponse: '1 entries EntryInfo*',
    WatchRequest: '1 path string, 2 recursive bool, 3 include_entry bool, 4 allow_network_mounts bool',
    WatchDirResponse: '1 start Empty @event, 2 filesystem FilesystemEvent @event, 3 keepalive Empty @event',
    FilesystemEvent: '1 name string, 2 type EventType, 3 entry EntryInfo?',
    WatcherRequest: '1 watcher_id string',
    WatcherEvents: '1 events FilesystemEvent*',
    EntryInfo:
      '1 name string, 2 type FileType, 3 path string, 4 size int64, 5 mode uint32, 6 permissions string, 7 owner string, ' +
      '8 group string, 9 modified_time time, 10 symlink_target string?, 11 metadata map',
  },
  enums: {
    FileType: { FILE_TYPE_UNSPECIFIED: 0, FILE_TYPE_FILE: 1, FILE_TYPE_DIRECTORY: 2, FILE_TYPE_SYMLINK: 3 },
    EventType: {
      EVENT_TYPE_UNSPECIFIED: 0,
      EVENT_TYPE_CREATE: 1,
      EVENT_TYPE_WRITE: 2,
      EVENT_TYPE_REMOVE: 3,
      EVENT_TYPE_RENAME: 4,
      EVENT_TYPE_CHMOD: 5,
    },
  },
};
